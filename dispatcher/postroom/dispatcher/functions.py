"""Submitting and cancelling from any language: two Redis functions that wrap the very transitions the client uses.

    FCALL postroom_submit 1 'postroom:{order 7}:thread' support 'Where is it?' [name value ...]
    FCALL postroom_cancel 1 'postroom:{order 7}:thread' [run]

`postroom dispatcher` installs them; docs/enqueue.md is their manual.
"""

from postroom.mailbox import scripts
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

# These use cmsgpack, which the transitions do without: only a real server has it.
_SUBMIT = """
local function submit_arguments(args)
  local given = {{run = 'call-' .. redis.call('INCR', 'postroom:call-runs'), on_busy = 'enqueue', key = '',
    queue = 'default', priority = '128', start_at = '', deadline = '', tenant = '', webhook = ''}}
  if not args[1] or not args[2] then return nil, 'give an agent and a text' end
  for i = 3, #args, 2 do
    if given[args[i]] == nil or not args[i + 1] then return nil, 'unknown or empty option ' .. args[i] end
    given[args[i]] = args[i + 1]
  end
  if not string.match(given.run, '^[%w_-]+$') or #given.run > 64 then
    return nil, 'a run id is 1 to 64 letters, digits, _ or -'
  end
  if not ({{enqueue = 1, reject = 1, interrupt = 1}})[given.on_busy] then
    return nil, 'on_busy is enqueue, reject or interrupt here'
  end
  local priority = tonumber(given.priority)
  if not priority or priority < 0 or priority > 255 then return nil, 'priority is 0 to 255' end
  for _, time in ipairs({{given.start_at, given.deadline}}) do
    if time ~= '' and not tonumber(time) then return nil, 'start_at and deadline are milliseconds since 1970' end
  end
  for _, name in ipairs({{args[1], given.queue}}) do
    if not string.match(name, '^[%w_][%w_.:@/-]*$') then return nil, 'not a name: ' .. name end
  end
  local words = {{messages = {{{{role = 'user', content = {{{{type = 'text', text = args[2]}}}}}}}}}}
  local fields = {{'request', '\\{version}' .. cmsgpack.pack(words)}}
  if given.webhook ~= '' and not string.match(given.webhook, '^https?://[^%s@#]+$') then
    return nil, 'webhook is an http or https URL without user and password'
  end
  for _, name in ipairs({{'tenant', 'webhook'}}) do
    if given[name] ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = given[name]
    end
  end
  local flat = {{'', given.run, given.on_busy, 'supersede', given.key, given.priority, given.start_at, given.deadline,
    '{max_lane}', '{max_mail}', args[1], given.queue, '{run_retention}', '{thread_retention}', '{dedupe}', #fields}}
  for _, part in ipairs(fields) do flat[#flat + 1] = part end
  flat[#flat + 1] = 0
  return flat
end
"""

_CANCEL = """
local function cancel_arguments(args) return {{'', args[1] or '', 'cancelled', ''}} end
"""

_FUNCTION = """
redis.register_function('postroom_{name}', function(keys, args)
  if #keys ~= 1 or not string.match(keys[1], '^postroom:{{[^{{}}%c]+}}:thread$') then
    return redis.error_reply('ERR the key must be postroom:{{THREAD}}:thread')
  end
  local arguments, wrong = {name}_arguments(args)
  if not arguments then return redis.error_reply('ERR ' .. wrong) end
  open_call(keys, arguments)
  open_thread(keys[1])
  return transitions.{name}()
end)
"""


def library(settings: Settings) -> str:
    """The source of the library; limits and retentions are those of whoever installs it."""
    values = {
        "version": "1",
        "max_lane": settings.max_lane,
        "max_mail": settings.max_mail,
        "run_retention": settings.run_retention_ms,
        "thread_retention": settings.thread_retention_ms,
        "dedupe": settings.dedupe_ms,
    }
    parts = ["#!lua name=postroom", scripts.body(), _SUBMIT.format(**values), _CANCEL.format()]
    parts += [_FUNCTION.format(name=name) for name in ("submit", "cancel")]
    return "\n".join(parts)


def install(settings: Settings) -> Op[bytes]:
    """Installs the library, in place of an older one."""
    return Op(("FUNCTION", "LOAD", "REPLACE", library(settings)), bytes)
