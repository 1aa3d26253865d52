"""The scripts that Redis runs for the store: each is one step, which no other command interrupts.

All keys of a session have one hash tag, so they are in one slot of a cluster, and one script may use
them together:

* a hash for each log: its entries by number, and the fields of :data:`APPEND`;
* the *index* of the session, a hash: the bytes of each log, and their sum (``#``);
* the *ages* of its logs, a sorted set: when each got its last entry.

A log is a hash and not a stream of Redis, because most logs have few entries, and a stream takes
4 KiB for the first. An entry is found by its number, so a page is one command.
"""

APPEND = """
-- KEYS: log, index, ages
-- ARGV: first number, token, log's name, time in ms or '', most entries of a log, most bytes of a
--       session, most age in ms, the entries
local log, index, ages = KEYS[1], KEYS[2], KEYS[3]
local first, token, name = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local most_entries, most_bytes, most_age = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local count = #ARGV - 7
local now = tonumber(ARGV[4])
if now == nil then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local known = redis.call('HMGET', log, 'first', 'last', 'bytes', 'token', 'from')
local oldest, last, bytes = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
if last then
  if first > last + 1 then return 'behind' end
  if first <= last then
    if known[4] == token and tonumber(known[5]) == first then return 'stored' end
    return 'conflict'
  end
else
  oldest, last, bytes = first, first - 1, 0
end
local total = tonumber(redis.call('HGET', index, '#') or 0)

-- What is too old goes first: whole logs, at most eight at a time.
local old = redis.call('ZRANGE', ages, '-inf', '(' .. string.format('%.0f', now - most_age),
                       'BYSCORE', 'LIMIT', 0, 8)
for _, each in ipairs(old) do
  if each ~= log then
    total = total - tonumber(redis.call('HGET', index, each) or 0)
    redis.call('HDEL', index, each)
    redis.call('ZREM', ages, each)
    redis.call('UNLINK', each)
  end
end

local added = 0
for number = 1, count do
  local entry = ARGV[7 + number]
  redis.call('HSET', log, string.format('%.0f', last + number), entry)
  added = added + #entry + 64
end
last = last + count
bytes, total = bytes + added, total + added

local function shorten()
  local entry = redis.call('HGET', log, string.format('%.0f', oldest))
  redis.call('HDEL', log, string.format('%.0f', oldest))
  bytes, total, oldest = bytes - #entry - 64, total - #entry - 64, oldest + 1
end
while oldest < last and (last - oldest >= most_entries or bytes > most_bytes) do shorten() end

-- Then the logs of the session that were used longest ago, and at last the beginning of this one.
while total > most_bytes do
  local victim = redis.call('ZRANGE', ages, 0, 0)[1]
  if victim == log then victim = redis.call('ZRANGE', ages, 1, 1)[1] end
  if not victim then break end
  total = total - tonumber(redis.call('HGET', index, victim) or 0)
  redis.call('HDEL', index, victim)
  redis.call('ZREM', ages, victim)
  redis.call('UNLINK', victim)
end

redis.call('HSET', log, 'first', string.format('%.0f', oldest), 'last', string.format('%.0f', last),
           'bytes', bytes, 'token', token, 'from', string.format('%.0f', first))
redis.call('HSET', index, log, bytes, '#', total)
redis.call('ZADD', ages, now, log)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, most_age) end
redis.call('PUBLISH', index, name)
return 'stored'
"""

READ = """
-- KEYS: log
-- ARGV: after, most entries, most bytes
-- Returns the number of the first entry, the last number, the last entry without its data, and the
-- entries; nothing if the log does not exist.
local known = redis.call('HMGET', KEYS[1], 'first', 'last')
local oldest, last = tonumber(known[1]), tonumber(known[2])
if not last then return false end
local from = math.max(tonumber(ARGV[1]) + 1, oldest)
local final = redis.call('HGET', KEYS[1], string.format('%.0f', last))
local page = {string.format('%.0f', from), string.format('%.0f', last), string.sub(final, 1, 2)}
local size = 0
for number = from, math.min(last, from + tonumber(ARGV[2]) - 1) do
  local entry = redis.call('HGET', KEYS[1], string.format('%.0f', number))
  size = size + #entry - 2
  if number > from and size > tonumber(ARGV[3]) then break end
  page[#page + 1] = entry
end
return page
"""

DROP = """
-- KEYS: index, ages. Deletes all logs of the session.
local logs = redis.call('ZRANGE', KEYS[2], 0, -1)
for _, log in ipairs(logs) do redis.call('UNLINK', log) end
redis.call('UNLINK', KEYS[1], KEYS[2])
return #logs
"""
