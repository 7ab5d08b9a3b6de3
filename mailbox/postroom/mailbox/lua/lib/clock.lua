-- For scripts that belong to no thread: ARGV[1] is the clock, empty for the server's own.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function in_future(milliseconds) return string.format('%.0f', now + milliseconds) end
