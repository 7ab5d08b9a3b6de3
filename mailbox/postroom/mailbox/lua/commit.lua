-- Writes one step of a running run. ARGV: clock, batch. Returns {"committed" | "again", arrivals}.
open_batch()
if already_applied() then return arrivals('again') end
local refusal = check_owner() or check_sections()
if refusal then return refusal end
apply_sections()
write_changes()
return arrivals('committed')
