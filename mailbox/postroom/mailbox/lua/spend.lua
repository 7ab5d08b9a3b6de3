-- Takes tokens from a model's bucket, or gives some back when the number is negative. KEYS: limit. Arguments: clock,
-- tokens.
-- A bucket that nobody used for a while is full again, so nothing is made for it. Returns 1 if there was one.
if redis.call('HEXISTS', KEYS[1], 'tokens') == 0 then return 0 end
redis.call('HINCRBYFLOAT', KEYS[1], 'tokens', -tonumber(ARGV[2]))
return 1
