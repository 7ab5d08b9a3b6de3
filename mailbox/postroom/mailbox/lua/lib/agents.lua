-- What storing and dropping an agent share: where the present version of each agent stands, and what numbers them.
-- Versions are numbered over all agents and for ever, so a number names one definition and never another.
local agents_key, counter_key = 'postroom:agents', 'postroom:agents:version'

local function version_key(number) return 'postroom:agent-version:' .. number end
local function history_key(agent) return 'postroom:agent-history:' .. agent end

-- Somebody who has not seen the present version must not replace it. Empty: whatever it is.
local function check_expected(agent, present, expected)
  if expected == '' or expected == present then return nil end
  local is = present == '0' and 'is not stored' or 'is at version ' .. present
  return refuse('AGENTVERSION', 'agent ' .. agent .. ' ' .. is .. ', not at ' .. expected .. '; look at it and try again')
end

-- A wake-up for all workers; the counter is the fact.
local function announce(number) redis.call('PUBLISH', agents_key .. ':changed', number) end
