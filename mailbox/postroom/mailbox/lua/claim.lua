-- Takes the thread for its head run. Arguments: clock, run, worker, lease, the worker's name for this activation or "".
-- Returns the claim, as `claim_run` says.
local run, worker, lease, activation = take(), take(), take(), take()
local claim, why = claim_run(run, worker, lease, activation)
return claim or refuse('NOTHING', 'run ' .. run .. ' ' .. why)
