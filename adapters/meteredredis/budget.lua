-- One decision on one budget. Everything is read, then everything is checked and changed in memory, then
-- everything is written; there is one key, so it is one slot, and nobody sees half of it.
--
-- KEYS[1] is the budget's hash. Its fields:
--   h      the head: the version of this layout, when it was last brought to (microseconds of the server's clock),
--          its epoch, the number of admissions, the end of the hold, the ramp (number, size, in flight, proven,
--          last admission), the last admission, the end of a probe, and the claim of the oldest waiting head
--          (process, arrival, end); when the key expires; when the first process came back after an
--          outage
--   p      which processes were seen, and when
--   others one for each limit: level, shadow level, all that was charged, all that was charged extra, the latest
--          report, the lowest limit that a process has declared (rate, capacity, until when), the claim's share,
--          and a window's log of instants and costs
--
-- ARGV[1] is what codec.go writes, a JSON array; the answer is the integers that codec.go reads. Times are microseconds; what goes
-- out is a duration, never an instant of this clock, but for the admission's, which comes back with its refund.

local A, pos = cjson.decode(ARGV[1]), 0
local min, max, floor, ceil, unpack = math.min, math.max, math.floor, math.ceil, unpack
local function arg() pos = pos + 1; return A[pos] end

-- Numbers are kept as the eight bytes of a double. An embedded engine for tests may lack the library for
-- that; there they are kept as text.
local HEAD, LIMIT, PAIR = '<ddddddddddddddddd', '<ddddddddd', '<dd'
local struct = rawget(_G, 'struct')
local pack, numbers
if struct then
	pack = struct.pack
	numbers = function(s, format) return struct.unpack(format or '<' .. string.rep('d', #s / 8), s) end
else
	pack = function(_, ...)
		local out = {...}
		for i, x in ipairs(out) do out[i] = string.format('%.17g', x) end
		return table.concat(out, ' ') .. ' '
	end
	numbers = function(s)
		local out = {}
		for word in string.gmatch(s, '%S+') do out[#out + 1] = tonumber(word) end
		out[#out + 1] = 0
		return unpack(out)
	end
end

local LAYOUT, FLOOR, NONE, SLICES, NOBODY = 1, -2 ^ 60, -2 ^ 62, 256, 0
local MOST = 2 ^ 53 -- of what is answered
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

local known, fresh_epoch, pid, beat = arg(), arg(), arg(), arg()
local max_wait, answer_time, refuse_overdue = arg(), arg(), arg()
local k = arg()
local limits, names = {}, {'h', 'p'}
for i = 1, k do
	limits[i] = {name = arg(), rate = arg(), cap = arg(), per = arg(), window = arg() == 1}
	names[i + 2] = limits[i].name
end
local got = redis.call('HMGET', KEYS[1], unpack(names))

-- The head.
local h = {}
local fresh = not got[1]
if fresh then
	h = {layout = LAYOUT, at = now, epoch = fresh_epoch, n = 0, hold = 0, rn = 0, rs = 0, rf = 0, rp = 0, rt = 0, last = now, probe = 0,
		cpid = NOBODY, carr = 0, cend = 0, expires = 0, back = 0}
else
	h.layout, h.at, h.epoch, h.n, h.hold, h.rn, h.rs, h.rf, h.rp, h.rt, h.last, h.probe, h.cpid, h.carr, h.cend, h.expires, h.back = numbers(got[1], HEAD)
	if h.layout ~= LAYOUT then
		return redis.error_reply('METEREDLAYOUT the budget has another layout than the ' .. LAYOUT .. ' that this process knows')
	end
	if now < h.at then now = h.at end -- a clock that steps back mints nothing
end

-- Whoever knew another budget under this name, before a flush or a failover, first says what he knew.
local declared = arg() == 1
if known ~= NOBODY and known ~= h.epoch and not declared then
	return {}
end

-- Limits: the lower of what this process was told and what another told lately.
local warn = 0
for i = 1, k do
	local l, s = limits[i], got[i + 2]
	l.own_rate, l.own_cap = l.rate, l.cap
	l.level, l.shadow, l.cum, l.extra, l.reporter, l.low_rate, l.low_cap, l.low_end, l.claim = l.cap, NONE, 0, 0, 0, l.rate, l.cap, 0, 0
	if l.window then l.entries, l.used = {}, 0 end
	if s then
		if l.window then
			local all = {numbers(s)}
			l.level, l.shadow, l.cum, l.extra, l.reporter, l.low_rate, l.low_cap, l.low_end, l.claim = unpack(all, 1, 9)
			for j = 10, #all - 1, 2 do -- the library adds a position at the end
				if now - all[j] < l.per then
					l.entries[#l.entries + 1] = {all[j], all[j + 1]}
					l.used = l.used + all[j + 1]
				end
			end
		else
			l.level, l.shadow, l.cum, l.extra, l.reporter, l.low_rate, l.low_cap, l.low_end, l.claim = numbers(s, LIMIT)
		end
		if l.low_end > now and (l.low_rate < l.rate or l.low_cap < l.cap) then
			warn = 1
			l.rate, l.cap = min(l.rate, l.low_rate), min(l.cap, l.low_cap)
		end
	end
	if l.own_rate <= l.low_rate and l.own_cap <= l.low_cap or l.low_end <= now then
		l.low_rate, l.low_cap, l.low_end = l.own_rate, l.own_cap, now + 2 * l.per + 10000000
	else -- one may have the lower rate, another the lower capacity
		l.low_rate, l.low_cap = min(l.low_rate, l.own_rate), min(l.low_cap, l.own_cap)
	end
	if not l.window then
		local refill = (now - h.at) * l.rate
		l.level = min(l.cap, l.level + refill)
		if l.shadow > NONE then l.shadow = min(l.cap, l.shadow + refill) end
	end
end
h.at = now

-- charge books cost at now; below zero it is debt.
local function charge(l, cost)
	if cost == 0 then return end
	if not l.window then
		l.level = max(l.level - cost, FLOOR)
		if l.shadow > NONE then l.shadow = max(l.shadow - cost, FLOOR) end
		return
	end
	-- Charges of one slice of the window count from the last of them.
	l.used = l.used + cost
	local e = l.entries[#l.entries]
	local slice = l.per / SLICES
	if e and floor(e[1] / slice) == floor(now / slice) then
		e[1], e[2] = now, e[2] + cost
	else
		l.entries[#l.entries + 1] = {now, cost}
	end
end

-- refund gives back what was charged at an instant.
local function refund(l, cost, at)
	if not l.window then
		l.level = min(l.cap, l.level + cost)
		if l.shadow > NONE then l.shadow = min(l.cap, l.shadow + cost) end
		return
	end
	local slice = floor(at / (l.per / SLICES))
	for _, e in ipairs(l.entries) do
		if floor(e[1] / (l.per / SLICES)) == slice then -- else it counts no more
			local back = min(e[2], cost)
			e[2], l.used = e[2] - back, l.used - back
			return
		end
	end
end

-- available is what is left of a limit.
local function available(l)
	if l.window then return l.cap - l.used end
	if l.shadow > NONE then return min(l.level, l.shadow) end
	return l.level
end

-- lower takes a limit down to what a process knew.
local function lower(l, level)
	local over = available(l) - level
	if over > 0 then charge(l, over) end
end

if declared then
	local levels, hold = {}, 0
	for i = 1, k do levels[i] = arg() end
	hold = arg()
	if known ~= h.epoch then
		for i = 1, k do lower(limits[i], levels[i]) end
		if hold > 0 then
			h.hold = max(h.hold, now + hold)
			h.rn, h.rs, h.rf, h.rp = h.rn + 1, 1, 0, 0
		end
	end
end

local REFUND, EXTRA, BACK, HOLD, SERVED, LEFT, PROBED, REPORT, RETURN = 1, 2, 3, 4, 5, 6, 7, 8, 9

-- What happened to calls that were admitted before.
local last_back, stay = h.back, 0
for _ = 1, arg() do
	local op = arg()
	if op == REFUND then
		local i, cost, at = arg(), arg(), arg()
		refund(limits[i], cost, at)
	elseif op == EXTRA then
		local i, cost = arg(), arg()
		charge(limits[i], cost)
		limits[i].extra = limits[i].extra + cost
	elseif op == BACK then
		-- The first one back starts from what is left of its share; if it was away alone, from what there was for all less
		-- what both it and the others took. Who comes later owes what it took since, or beside the others.
		local l, level, away, spent, rate, rest = limits[arg()], arg(), arg(), arg(), arg(), arg()
		local still = l.window and min(spent, rate * l.per) or spent
		if now - last_back > away then
			lower(l, min(level, max(available(l) - still, rest - l.cum)))
			h.back = now
		else
			charge(l, max(min(spent, (now - last_back) * rate), min(still, l.cum - rest)))
		end
	elseif op == RETURN then
		-- All that were away go on by themselves until the last of them must have found the store.
		local away, grace = arg(), arg()
		if now - last_back > away then h.back = now end
		stay = max(0, h.back + grace - now)
	elseif op == HOLD then
		local span = arg()
		if span > 0 then
			h.hold = max(h.hold, now + span)
			h.rn, h.rs, h.rf, h.rp = h.rn + 1, 1, 0, 0
		elseif now >= h.hold then
			h.rs = 0
		end
	elseif op == SERVED then
		if arg() == h.rn and h.rs > 0 then
			h.rp = h.rp + 1
			if h.rp >= h.rs then h.rs, h.rp = h.rs * 2, 0 end
			if h.rs > 65536 then h.rs = 0 end
		end
	elseif op == LEFT then
		if arg() == h.rn and h.rf > 0 then h.rf = h.rf - 1 end
	elseif op == PROBED then
		h.probe = 0
	elseif op == REPORT then
		local l = limits[arg()]
		local n, cum, extra, remaining, literal = arg(), arg(), arg(), arg(), arg() == 1
		local left = remaining - (l.cum - cum) - (l.extra - extra)
		local raise = n >= l.reporter
		if raise then l.reporter = n end
		if l.window then
			local have = l.cap - l.used
			if left < have then
				charge(l, have - left)
			elseif raise and literal then
				local back = left - have
				for _, e in ipairs(l.entries) do
					local b = min(e[2], back)
					e[2], l.used, back = e[2] - b, l.used - b, back - b
				end
			end
		else
			left = max(min(left, l.cap), FLOOR)
			if literal then
				if raise or left < l.level then l.level = left end
			else
				if l.shadow == NONE then l.shadow = l.level end
				if raise or left < l.shadow then l.shadow = left end
			end
		end
	end
end

-- Who wants to leave: groups of calls of one cost each, in order; the head of them has waited for age.
local age, groups = arg(), arg()
local arrived = now - age
local granted, probe, wait, ramp, window, binding = 0, 0, stay, 0, 0, 0
local n_before, before = h.n, {}
for i = 1, k do before[i] = limits[i].cum end

-- Another process's head that came earlier has a claim: what it needs is left for it.
local claim = {}
local claimed = h.cpid ~= NOBODY and h.cpid ~= pid and h.cend > now and h.carr < arrived
for i = 1, k do claim[i] = claimed and limits[i].claim or 0 end

local blocked
if groups > 0 and h.hold > now then
	wait = h.hold - now
elseif groups > 0 then
	local room = math.huge
	if h.rs > 0 then
		if h.rf >= h.rs and now - h.rt >= answer_time then h.rf = h.rs - 1 end
		room = h.rs - h.rf
	end
	for _ = 1, groups do
		local n, costs, fit = arg(), {}, math.huge
		for i = 1, k do
			local l, cost = limits[i], arg()
			costs[i] = cost
			local free = available(l)
			if cost == 0 then
				if free < 0 then fit = 0 end
			else
				free = free - claim[i]
				if cost > l.cap then
					fit = min(fit, free >= l.cap and 1 or 0)
				else
					fit = min(fit, floor(free / cost))
				end
			end
		end
		local m = max(min(n, fit, room), 0)
		if m > 0 then
			for i = 1, k do
				charge(limits[i], m * costs[i])
				limits[i].cum = limits[i].cum + m * costs[i]
			end
			granted, room = granted + m, room - m
		end
		if m < n then
			if fit > m or room == 0 then
				ramp = 1 -- it is the ramp that keeps the next one back
			else
				blocked = costs
				if h.rs > 0 then h.rs = 0 end
			end
			break
		end
	end
	if granted > 0 then
		h.n, h.last = h.n + granted, now
		if h.rs > 0 then
			h.rf, h.rt = h.rf + granted, now
		end
	end
	if ramp == 1 then
		-- Nobody tells when another process's answer comes.
		wait = max(min(h.rt + answer_time - now, 50000), 1)
	elseif blocked then
		for i = 1, k do
			local l, cost = limits[i], blocked[i]
			local need = min(cost + (cost > 0 and claim[i] or 0), l.cap)
			local short = need - available(l)
			if short > 0 then
				if l.window then
					local own = short - (need - min(cost, l.cap)) -- without the claim
					for _, e in ipairs(l.entries) do
						local till = e[1] + l.per - now
						if own > 0 and own <= e[2] and till > window then window, binding = till, i end
						short, own = short - e[2], own - e[2]
						if short <= 0 then
							wait = max(wait, till)
							break
						end
					end
				else
					wait = max(wait, ceil(short / l.rate))
				end
			end
		end
		wait = max(wait, 1)
		-- Overdue: nothing was admitted for so long, on the whole key, but under a hold.
		if max_wait > 0 and granted == 0 then
			local patience = min(age, now - h.last, now - h.hold)
			if patience < max_wait then
				wait = min(wait, max_wait - patience)
			elseif refuse_overdue == 1 then
				probe = 2
			elseif h.probe > now then
				wait = min(wait, h.probe - now)
			else
				local bears = true
				for i = 1, k do
					if available(limits[i]) - blocked[i] < -limits[i].cap then bears = false end
				end
				if bears then
					granted, probe, wait = 1, 1, 0
					h.n, h.probe = h.n + 1, now + answer_time
					for i = 1, k do
						charge(limits[i], blocked[i])
						limits[i].cum = limits[i].cum + blocked[i]
					end
				end
			end
		end
	end
end

-- The claim: of the head that has waited longest.
if blocked and wait > 0 then
	if not claimed then
		h.cpid, h.carr, h.cend = pid, arrived, now + wait + 100000
		for i = 1, k do limits[i].claim = blocked[i] end
	end
elseif h.cpid == pid or h.cend <= now then
	h.cpid = NOBODY
end

-- Processes seen in the last ten seconds.
local write, processes = {}, 0
if beat == 1 then
	local seen = {pid, now}
	local all = got[2] and {numbers(got[2])} or {}
	for i = 1, #all - 1, 2 do
		if all[i] ~= pid and now - all[i + 1] < 10000000 and #seen < 4000 then
			seen[#seen + 1] = all[i]
			seen[#seen + 1] = all[i + 1]
		end
	end
	processes = #seen / 2
	local all = {}
	for i = 1, #seen, 2 do all[#all + 1] = pack(PAIR, seen[i], seen[i + 1]) end
	write = {'p', table.concat(all)}
end

-- All is decided: write it.
local ttl = max(h.hold - now, 0) + 10000000
local reply = {granted, probe, ceil(min(wait, MOST)), ceil(min(max(h.hold - now, 0), MOST)), h.epoch, now, n_before,
	h.rs > 0 and h.rn or 0, processes, warn, ceil(window), binding}
local n, r = #write + 2, #reply
for i = 1, k do
	local l = limits[i]
	local free = available(l)
	local s = pack(LIMIT, l.level, l.shadow, l.cum, l.extra, l.reporter, l.low_rate, l.low_cap, l.low_end, l.claim)
	if l.window then
		local log = {s}
		for _, e in ipairs(l.entries) do
			if e[2] > 0 then log[#log + 1] = pack(PAIR, e[1], e[2]) end
		end
		s = table.concat(log)
		ttl = max(ttl, 2 * l.per)
	else
		ttl = max(ttl, 2 * l.per, 2 * (l.cap - free) / l.rate)
	end
	write[n + 1], write[n + 2] = l.name, s
	reply[r + 1], reply[r + 2], reply[r + 3] = floor(max(min(free, 9e12), -9e12) * 1e6), before[i], l.extra
	n, r = n + 2, r + 3
end
-- The key lives for half as long again as it must, so that not every call has to say so.
local expire = now + ttl > h.expires
if expire then h.expires = now + ttl + ttl / 2 end
local at = n - 2 * k
write[at - 1] = 'h'
write[at] = pack(HEAD, LAYOUT, now, h.epoch, h.n, h.hold, h.rn, h.rs, h.rf, h.rp, h.rt, h.last, h.probe, h.cpid, h.carr, h.cend, h.expires, h.back)
redis.call('HSET', KEYS[1], unpack(write))
if expire then redis.call('PEXPIRE', KEYS[1], string.format('%d', min(ceil(ttl * 1.5 / 1000), 2 ^ 52))) end
return reply
