-- Keeps started doorbells from counting as abandoned. KEYS: started registry. ARGV: until when, entries.
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', ARGV[1], ARGV[i])
  redis.call('EXPIREAT', 'rq:execution:' .. ARGV[i], ARGV[1])
end
return #ARGV - 1
