-- Tries errands that were given up once more, or forgets them. ARGV: clock, "replay" or "clear", list of their places in the
-- stream of those given up, empty for all. Returns how many.
local what, first, last = take(), take_span()
local lost_key = base .. 'undelivered'
local wanted = {}
for i = first, last do wanted[ARGV[i]] = true end
local count = 0
for _, entry in ipairs(redis.call('XRANGE', lost_key, '-', '+')) do
  if last < first or wanted[entry[1]] then
    local fields = {}
    for i = 1, #entry[2], 2 do
      if entry[2][i] ~= 'error' and entry[2][i] ~= 'at' then
        fields[#fields + 1] = entry[2][i]
        fields[#fields + 1] = entry[2][i + 1]
      end
    end
    if what == 'replay' then owe_errand(unpack(fields)) end
    redis.call('XDEL', lost_key, entry[1])
    count = count + 1
  end
end
if redis.call('XLEN', lost_key) == 0 then
  redis.call('DEL', lost_key)
  redis.call('ZREM', 'postroom:stranded', thread_id)
end
return count
