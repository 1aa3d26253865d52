"""The scripts that Redis runs for the store: each is one step, which no other command interrupts.

All keys of a session have one hash tag, so they are in one slot of a cluster, and one script may
use them together:

* a hash for each log: its entries by number, and the fields of :data:`APPEND`;
* the *index* of the session, a hash: the bytes of each log, and their sum (``#``);
* the *ages* of its logs, a sorted set: when each got its last entry.

A log is a hash and not a stream of Redis, because most logs have few entries, and a stream takes
4 KiB for the first. An entry is found by its number, so a page is one command.

Bytes are those that Redis takes, about: it needs 128 for each entry besides its data, and 768 for
each log (Redis 7.0, ``MEMORY USAGE``).

Redis refuses a script before its first write if memory is short, and does not undo a script that
fails later. So a script checks its arguments and reads every key of its own before it writes.
"""

_NOW = """
local function now_or(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function whole(number) return string.format('%.0f', number) end
"""

APPEND = f"""{_NOW}
-- KEYS: log, index, ages
-- ARGV: first number, token, what is told of the log, time in ms or '' for the clock of Redis, most
--       entries of a log, most bytes of a session, most age in ms, the entries
local log, index, ages = KEYS[1], KEYS[2], KEYS[3]
local first, token, count = tonumber(ARGV[1]), ARGV[2], #ARGV - 7
local most_entries, most_bytes, most_age = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local now = now_or(ARGV[4])
if not (first and now and most_entries and most_bytes and most_age and count > 0
        and most_age >= 1) then
  return redis.error_reply('ERR sansmcp: bad arguments')
end

local known = redis.call('HMGET', log, 'first', 'last', 'bytes', 'token', 'from')
local oldest, last, bytes = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local total = tonumber(redis.call('HGET', index, '#') or 0)
if oldest and last and bytes then
  if first > last + 1 then return 'behind' end
  if first <= last then
    if known[4] == token and tonumber(known[5]) == first then return 'stored' end
    return 'conflict'
  end
else
  oldest, last, bytes = first, first - 1, 768
  -- The index may still count a log of this name that has expired.
  total = total - tonumber(redis.call('HGET', index, log) or 0) + bytes
end

local function delete(other)
  total = total - tonumber(redis.call('HGET', index, other) or 0)
  redis.call('HDEL', index, other)
  redis.call('ZREM', ages, other)
  redis.call('UNLINK', other)
end

-- What is too old goes first: whole logs, at most eight at a time.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', ages, '-inf', '(' .. whole(now - most_age),
                                  'LIMIT', 0, 8)) do
  if other ~= log then delete(other) end
end

for number = 1, count do
  local entry = ARGV[7 + number]
  redis.call('HSET', log, whole(last + number), entry)
  bytes, total = bytes + #entry + 128, total + #entry + 128
end
last = last + count
while oldest < last and (last - oldest >= most_entries or bytes > most_bytes) do
  local size = redis.call('HSTRLEN', log, whole(oldest)) + 128
  redis.call('HDEL', log, whole(oldest))
  bytes, total, oldest = bytes - size, total - size, oldest + 1
end

-- Then other logs of the session. Of the eight that were used longest ago the largest goes: small
-- ones record that the session exists, or that a call was cancelled.
while total > most_bytes do
  local victim, largest = nil, -1
  for _, other in ipairs(redis.call('ZRANGE', ages, 0, 8)) do
    local size = tonumber(redis.call('HGET', index, other) or 0)
    if other ~= log and size > largest then victim, largest = other, size end
  end
  if not victim then break end
  delete(victim)
end

redis.call('HSET', log, 'first', whole(oldest), 'last', whole(last), 'bytes', whole(bytes),
           'token', token, 'from', whole(first))
redis.call('HSET', index, log, whole(bytes), '#', whole(total))
redis.call('ZADD', ages, whole(now), log)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, whole(most_age)) end
redis.call('PUBLISH', index, ARGV[3])
return 'stored'
"""

READ = """
-- KEYS: log
-- ARGV: after, most entries, most bytes
-- Returns the number of the first entry, the last number, the last entry without its data, and the
-- entries; nothing if the log does not exist.
local function whole(number) return string.format('%.0f', number) end
local known = redis.call('HMGET', KEYS[1], 'first', 'last')
local oldest, last = tonumber(known[1]), tonumber(known[2])
if not (oldest and last) then return false end
local from = math.max(tonumber(ARGV[1]) + 1, oldest)
local final = redis.call('HGET', KEYS[1], whole(last))
local page = {whole(from), whole(last), string.sub(final, 1, 2)}
local size = 0
for number = from, math.min(last, from + tonumber(ARGV[2]) - 1) do
  local entry = redis.call('HGET', KEYS[1], whole(number))
  size = size + #entry - 2
  if number > from and size > tonumber(ARGV[3]) then break end
  page[#page + 1] = entry
end
return page
"""

DROP = """
-- KEYS: index, ages. Deletes all logs of the session, and tells so by an empty name.
local logs = redis.call('ZRANGE', KEYS[2], 0, -1)
for _, log in ipairs(logs) do redis.call('UNLINK', log) end
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('PUBLISH', KEYS[1], '')
return #logs
"""

USE = f"""{_NOW}
-- KEYS: sessions of a principal, a sorted set: the index of each by the time of its last use
-- ARGV: index, time in ms or '', most sessions, ms after which an unused session has expired
-- Returns the sessions that have to go, at most eight: those that were used longest ago.
local now, most_age = now_or(ARGV[2]), tonumber(ARGV[4])
redis.call('ZADD', KEYS[1], whole(now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], whole(most_age))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. whole(now - most_age))
local excess = math.min(8, redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[3]))
if excess <= 0 then return {{}} end
local unused = redis.call('ZRANGE', KEYS[1], 0, excess - 1)
redis.call('ZREM', KEYS[1], unpack(unused))
return unused
"""

FORGET = """
-- KEYS: sessions of a principal. ARGV: the index of one that is deleted.
return redis.call('ZREM', KEYS[1], ARGV[1])
"""

TAKE = """
-- KEYS: bucket, the time in us when it will be full; there is none for a full bucket
-- ARGV: us that the wanted tokens take to come, us that a whole bucket takes, time in ms or ''
-- Returns the us until there are enough tokens, 0 if they were taken.
local wanted, capacity, now = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if now ~= '' then
  now = tonumber(now) * 1000
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
-- At most empty, also if the clock was put back.
full_at = math.min(math.max(full_at, now), now + capacity) + wanted
local wait = full_at - now - capacity
if wait > 0 then return wait end
redis.call('SET', KEYS[1], string.format('%.0f', full_at),
           'PX', string.format('%.0f', math.ceil((full_at - now) / 1000)))
return 0
"""
