-- Submitting and cancelling from any language: two functions around the very transitions that the client uses. What the
-- client refuses is refused here; the rules are those of `mailbox.keys`, `mailbox.contract` and `mailbox.runs`.
-- Before this stand the transitions, and as LIMITS, RESERVED, MAX_TIME and MAX_URL what Python knows.
-- It uses cmsgpack, which the transitions do without: only a real server has it. While a library is loaded there are none of
-- Lua's own functions.

local UTF8 = {'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]'}

-- Replaced by a space, what was well-formed cannot make its neighbours so.
local function is_text(words)
  for _, sequence in ipairs(UTF8) do words = string.gsub(words, sequence, ' ') end
  return not string.find(words, '[\128-\255]')
end

local function is_id(words)
  local odd = string.find(words, '[{}%c]') or string.find(words, '\194[\128-\159]')
    or string.find(words, '\226\128[\168\169]')
  return words ~= '' and #words <= 256 and is_text(words) and not odd
end

local function is_name(words) return #words <= 128 and string.find(words, '^[%w_][%w_.:@/-]*$') end

local function is_number(words, most) return #words <= 15 and string.find(words, '^%d+$') and tonumber(words) <= most end

local function is_time(words) return is_number(words, MAX_TIME) end

local function is_own_run(words)
  for _, prefix in ipairs(RESERVED) do
    if string.sub(words, 1, #prefix) == prefix then return false end
  end
  return #words <= 64 and string.find(words, '^[%w_-]+$')
end

local function is_ipv6(words)
  local _, gaps = string.gsub(words, '::', '')
  local groups = 0
  for group in string.gmatch(words, '[^:]+') do
    if not string.find(group, '^%x%x?%x?%x?$') then return false end
    groups = groups + 1
  end
  if string.find(words, ':::') or string.find(words, '^:[^:]') or string.find(words, '[^:]:$') then return false end
  return gaps == 1 and groups < 8 or gaps == 0 and groups == 8
end

-- Stricter than the client with hosts in other letters than ours: what those stand for is more than Lua can tell.
local function is_host(words)
  local address = string.match(words, '^%[(.*)%]$')
  if address then return is_ipv6(address) end
  return string.find(words, '^[^%[%]:@\128-\255]+$')
end

local function is_web_address(words)
  local authority, rest = string.match(words, '^[hH][tT][tT][pP][sS]?://([^/?#]*)(.*)$')
  if not authority or string.find(words, '[%c ]') or string.find(rest, '#.') or not is_text(words) then return false end
  local _, length = string.gsub(words, '[^\128-\191]', '')
  local host, port = string.match(authority, '^(.-):(%d*)$')
  local well = not port or port == '' or is_number(port, 65535) and tonumber(port) > 0
  return length <= MAX_URL and well and is_host(host or authority)
end

local MODES = {enqueue = true, reject = true, interrupt = true}
local A_TIME = ' is whole milliseconds since 1970'
local A_NAME = ' is 1 to 128 letters, digits or any of _ . : @ / -'
local AN_ID = ' is 1 to 256 bytes of UTF-8 without braces and control characters'
-- What may be said beside agent and text: how each value is checked, and what it must be.
local OPTIONS = {
  run = {is_own_run, ' is 1 to 64 letters, digits, _ or -, and begins with neither mail- nor call-'},
  key = {is_id, AN_ID},
  on_busy = {function(words) return MODES[words] end, ' is enqueue, reject or interrupt here'},
  queue = {is_name, A_NAME},
  priority = {function(words) return is_number(words, 255) end, ' is 0 to 255'},
  start_at = {is_time, A_TIME},
  deadline = {is_time, A_TIME},
  tenant = {is_id, AN_ID},
  webhook = {is_web_address, ' is an http or https URL without user, password and fragment, of at most ' .. MAX_URL
    .. ' characters'},
}

local function options_of(args)
  local given = {on_busy = 'enqueue', queue = 'default', priority = '128'}
  for i = 3, #args, 2 do
    local name, value = args[i], args[i + 1]
    local option = OPTIONS[name]
    if not option or not value then return nil, 'unknown or empty option ' .. name end
    if not option[1](value) then return nil, name .. option[2] end
    given[name] = value
  end
  if given.start_at and given.on_busy ~= 'enqueue' then
    return nil, 'a delayed run can only be enqueued; leave on_busy at enqueue'
  end
  return given
end

local arguments_of = {}

function arguments_of.submit(args)
  local agent, words = args[1], args[2]
  if not agent or not words then return nil, 'give an agent and a text' end
  if not is_name(agent) then return nil, 'agent' .. A_NAME end
  if not is_text(words) then return nil, 'the text must be UTF-8' end
  local given, wrong = options_of(args)
  if not given then return nil, wrong end
  local request = {messages = {{role = 'user', content = {{type = 'text', text = words}}}}}
  local body = LIMITS.version .. cmsgpack.pack(request)
  if #body > tonumber(LIMITS.max_body) then
    return nil, 'the body has ' .. #body .. ' bytes, the limit is ' .. LIMITS.max_body
      .. '; store it elsewhere and send a link'
  end
  local fields = {'request', body}
  for _, name in ipairs({'tenant', 'webhook'}) do
    if given[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = given[name]
    end
  end
  local run = given.run or 'call-' .. redis.call('INCR', 'postroom:call-runs')
  local flat = {'', run, given.on_busy, 'supersede', given.key or '', given.priority, given.start_at or '',
    given.deadline or '', LIMITS.max_lane, LIMITS.max_mail, agent, given.queue, LIMITS.run_retention,
    LIMITS.thread_retention, LIMITS.dedupe, #fields}
  for _, part in ipairs(fields) do flat[#flat + 1] = part end
  flat[#flat + 1] = 0
  return flat
end

function arguments_of.cancel(args) return {'', args[1] or '', 'cancelled', ''} end

local function serve(name)
  redis.register_function('postroom_' .. name, function(keys, args)
    local thread = #keys == 1 and string.match(keys[1], '^postroom:{([^{}]+)}:thread$')
    if not thread or not is_id(thread) then
      return redis.error_reply('ERR the key must be postroom:{THREAD}:thread, the thread up to 256 bytes of UTF-8')
    end
    local arguments, wrong = arguments_of[name](args)
    if not arguments then return redis.error_reply('ERR ' .. wrong) end
    return on_thread(keys, arguments, name)
  end)
end

serve('submit')
serve('cancel')
