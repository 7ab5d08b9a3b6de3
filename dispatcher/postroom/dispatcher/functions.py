"""Submitting and cancelling from any language: two Redis functions that wrap the very transitions the client uses.

    FCALL postroom_submit 1 'postroom:{order 7}:thread' support 'Where is it?' [name value ...]
    FCALL postroom_cancel 1 'postroom:{order 7}:thread' [run]

`postroom dispatcher` installs them; docs/enqueue.md is their manual.
"""

from postroom.mailbox import scripts
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

# The rules that `mailbox.keys` has for ids. Replaced by a space, what was well-formed cannot make its neighbours so.
_CHECKS = r"""
local UTF8 = {'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]'}
local function is_text(words)
  for _, sequence in ipairs(UTF8) do words = string.gsub(words, sequence, ' ') end
  return not string.find(words, '[\128-\255]')
end
local function is_id(words)
  local odd = string.find(words, '[{}%c]') or string.find(words, '\194[\128-\159]')
    or string.find(words, '\226\128[\168\169]')
  return #words <= 256 and is_text(words) and not odd
end
local function is_number(words) return #words <= 15 and string.find(words, '^%d+$') end
"""

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
  if not is_number(given.priority) or tonumber(given.priority) > 255 then return nil, 'priority is 0 to 255' end
  for _, time in ipairs({{given.start_at, given.deadline}}) do
    if time ~= '' and not is_number(time) then return nil, 'start_at and deadline are milliseconds since 1970' end
  end
  for _, name in ipairs({{args[1], given.queue}}) do
    if not string.match(name, '^[%w_][%w_.:@/-]*$') or #name > 128 then return nil, 'not a name: ' .. name end
  end
  for _, id in ipairs({{given.key, given.tenant}}) do
    if not is_id(id) then return nil, 'key and tenant are up to 256 bytes of UTF-8, no brace, no control character' end
  end
  if not is_text(args[2]) or not is_text(given.webhook) then return nil, 'the text and the webhook must be UTF-8' end
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
  local thread = #keys == 1 and string.match(keys[1], '^postroom:{{([^{{}}]+)}}:thread$')
  if not thread or not is_id(thread) then
    return redis.error_reply('ERR the key must be postroom:{{THREAD}}:thread, the thread up to 256 bytes of UTF-8')
  end
  local arguments, wrong = {name}_arguments(args)
  if not arguments then return redis.error_reply('ERR ' .. wrong) end
  return on_thread(keys, arguments, '{name}')
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
    parts = ["#!lua name=postroom", scripts.body(), _CHECKS, _SUBMIT.format(**values), _CANCEL.format()]
    parts += [_FUNCTION.format(name=name) for name in ("submit", "cancel")]
    return "\n".join(parts)


def install(settings: Settings) -> Op[bytes]:
    """Installs the library, in place of an older one."""
    return Op(("FUNCTION", "LOAD", "REPLACE", library(settings)), bytes)
