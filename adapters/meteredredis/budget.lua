-- One decision on one budget. Everything is read, then everything is checked and changed in memory, then
-- everything is written; there is one key, so it is one slot, and nobody sees half of it.
--
-- KEYS[1] is the budget's hash. Its fields:
--   v      the version of this layout
--   h      the head: when it was last brought to (microseconds of the server's clock), its epoch, the number of
--          admissions, the end of the hold, the ramp (number, size, in flight, proven, last admission), the last
--          admission, the end of a probe, and the claim of the oldest waiting head (process, arrival, end, costs)
--   p      which processes were seen, and when
--   others one for each limit: level or log, shadow level, all that was charged, all that was charged extra, the
--          latest report, and the lowest limit that a process has declared (rate, capacity, until when)
--
-- ARGV is what codec.go writes; the answer is what codec.go reads. Times are microseconds; what goes out is
-- a duration, never an instant of this clock, but for the admission's, which comes back with its refund.

local A, pos = ARGV, 0
local function str() pos = pos + 1; return A[pos] end
local function num() pos = pos + 1; return tonumber(A[pos]) end

local LAYOUT, FLOOR, SLICES = 1, -2 ^ 60, 256
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

local known, fresh_epoch, pid, beat = str(), str(), str(), num()
local max_wait, answer_time, refuse_overdue = num(), num(), num()
local k = num()
local limits, names = {}, {'v', 'h', 'p'}
for i = 1, k do
	limits[i] = {name = str(), rate = num(), cap = num(), per = num(), window = num() == 1}
	names[i + 3] = limits[i].name
end
local got = redis.call('HMGET', KEYS[1], unpack(names))
if got[1] and tonumber(got[1]) ~= LAYOUT then
	return redis.error_reply('METEREDLAYOUT the budget has layout ' .. got[1] .. ', this process knows ' .. LAYOUT)
end

-- The head.
local h = {at = now, epoch = fresh_epoch, n = 0, hold = 0, rn = 0, rs = 0, rf = 0, rp = 0, rt = 0, last = now, probe = 0,
	cpid = '-', carr = 0, cend = 0, costs = '-'}
local fresh = not got[2]
if not fresh then
	local at, epoch, n, hold, rn, rs, rf, rp, rt, last, probe, cpid, carr, cend, costs = string.match(got[2],
		'^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
	if not at then
		return redis.error_reply('METEREDLAYOUT the budget cannot be read')
	end
	h = {at = tonumber(at), epoch = epoch, n = tonumber(n), hold = tonumber(hold), rn = tonumber(rn), rs = tonumber(rs),
		rf = tonumber(rf), rp = tonumber(rp), rt = tonumber(rt), last = tonumber(last), probe = tonumber(probe),
		cpid = cpid, carr = tonumber(carr), cend = tonumber(cend), costs = costs}
	if now < h.at then now = h.at end -- a clock that steps back mints nothing
end

-- Whoever knew another budget under this name, before a flush or a failover, first says what he knew.
local declared = num() == 1
if known ~= '-' and known ~= h.epoch and not declared then
	return 'declare'
end

-- Limits: the lower of what this process was told and what another told lately.
local warn = 0
for i = 1, k do
	local l, s = limits[i], got[i + 3]
	l.own_rate, l.own_cap = l.rate, l.cap
	l.cum, l.extra, l.reporter, l.low_rate, l.low_cap, l.low_end = 0, 0, 0, l.rate, l.cap, 0
	l.level, l.entries, l.used = l.cap, {}, 0
	if s then
		local level, shadow, cum, extra, reporter, low_rate, low_cap, low_end = string.match(s,
			'^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
		l.cum, l.extra, l.reporter = tonumber(cum), tonumber(extra), tonumber(reporter)
		l.low_rate, l.low_cap, l.low_end = tonumber(low_rate), tonumber(low_cap), tonumber(low_end)
		if l.window then
			for at, cost in string.gmatch(level, '([^:;]+):([^;]+)') do
				at, cost = tonumber(at), tonumber(cost)
				if now - at < l.per then
					l.entries[#l.entries + 1] = {at, cost}
					l.used = l.used + cost
				end
			end
		else
			l.level, l.shadow = tonumber(level), tonumber(shadow)
		end
		if l.low_end > now and (l.low_rate < l.rate or l.low_cap < l.cap) then
			warn = 1
			l.rate, l.cap = math.min(l.rate, l.low_rate), math.min(l.cap, l.low_cap)
		end
	end
	if l.own_rate <= l.low_rate and l.own_cap <= l.low_cap or l.low_end <= now then
		l.low_rate, l.low_cap, l.low_end = l.own_rate, l.own_cap, now + 2 * l.per + 10000000
	end
	if not l.window then
		local refill = (now - h.at) * l.rate
		l.level = math.min(l.cap, l.level + refill)
		if l.shadow then l.shadow = math.min(l.cap, l.shadow + refill) end
	end
end
h.at = now

-- charge books cost at now; below zero it is debt.
local function charge(l, cost)
	if cost == 0 then return end
	if not l.window then
		l.level = math.max(l.level - cost, FLOOR)
		if l.shadow then l.shadow = math.max(l.shadow - cost, FLOOR) end
		return
	end
	-- Charges of one slice of the window count from the last of them.
	l.used = l.used + cost
	local e = l.entries[#l.entries]
	local slice = l.per / SLICES
	if e and math.floor(e[1] / slice) == math.floor(now / slice) then
		e[1], e[2] = now, e[2] + cost
	else
		l.entries[#l.entries + 1] = {now, cost}
	end
end

-- refund gives back what was charged at an instant.
local function refund(l, cost, at)
	if not l.window then
		l.level = math.min(l.cap, l.level + cost)
		if l.shadow then l.shadow = math.min(l.cap, l.shadow + cost) end
		return
	end
	for _, e in ipairs(l.entries) do
		if e[1] >= at then
			local back = math.min(e[2], cost)
			e[2], l.used = e[2] - back, l.used - back
			return
		end
	end
end

-- available is what is left of a limit.
local function available(l)
	if l.window then return l.cap - l.used end
	if l.shadow then return math.min(l.level, l.shadow) end
	return l.level
end

-- lower takes a limit down to what a process knew.
local function lower(l, level)
	local over = available(l) - level
	if over > 0 then charge(l, over) end
end

if declared then
	local levels, hold = {}, 0
	for i = 1, k do levels[i] = num() end
	hold = num()
	if known ~= h.epoch then
		for i = 1, k do lower(limits[i], levels[i]) end
		if hold > 0 then h.hold = math.max(h.hold, now + hold) end
	end
end

-- What happened to calls that were admitted before.
for _ = 1, num() do
	local op = str()
	if op == 'refund' then
		local i, cost, at = num(), num(), num()
		refund(limits[i], cost, at)
	elseif op == 'extra' then
		local i, cost = num(), num()
		charge(limits[i], cost)
		limits[i].extra = limits[i].extra + cost
	elseif op == 'spent' then -- while the store was away; who declared his level has said so
		local i, cost = num(), num()
		if known == h.epoch then charge(limits[i], cost) end
	elseif op == 'hold' then
		local span = num()
		if span > 0 then
			h.hold = math.max(h.hold, now + span)
			h.rn, h.rs, h.rf, h.rp = h.rn + 1, 1, 0, 0
		elseif now >= h.hold then
			h.rs = 0
		end
	elseif op == 'served' then
		if num() == h.rn and h.rs > 0 then
			h.rp = h.rp + 1
			if h.rp >= h.rs then h.rs, h.rp = h.rs * 2, 0 end
			if h.rs > 65536 then h.rs = 0 end
		end
	elseif op == 'left' then
		if num() == h.rn and h.rf > 0 then h.rf = h.rf - 1 end
	elseif op == 'probed' then
		h.probe = 0
	elseif op == 'report' then
		local l = limits[num()]
		local n, cum, extra, remaining, literal = num(), num(), num(), num(), num() == 1
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
					local b = math.min(e[2], back)
					e[2], l.used, back = e[2] - b, l.used - b, back - b
				end
			end
		else
			left = math.max(math.min(left, l.cap), FLOOR)
			if literal then
				if raise or left < l.level then l.level = left end
			else
				l.shadow = l.shadow or l.level
				if raise or left < l.shadow then l.shadow = left end
			end
		end
	end
end

-- Who wants to leave: groups of calls of one cost each, in order; the head of them has waited for age.
local age, groups = num(), num()
local arrived = now - age
local granted, probe, wait, ramp = 0, 0, 0, 0
local n_before, before = h.n, {}
for i = 1, k do before[i] = limits[i].cum end

-- Another process's head that came earlier has a claim: what it needs is left for it.
local claim = {}
local claimed = h.cpid ~= '-' and h.cpid ~= pid and h.cend > now and h.carr < arrived
if claimed then
	local i = 0
	for cost in string.gmatch(h.costs, '[^,]+') do
		i = i + 1
		claim[i] = tonumber(cost)
	end
end

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
		local n, costs, fit = num(), {}, math.huge
		for i = 1, k do
			local l, cost = limits[i], num()
			costs[i] = cost
			local free = available(l)
			if cost == 0 then
				if free < 0 then fit = 0 end
			else
				free = free - (claim[i] or 0)
				if cost > l.cap then
					fit = math.min(fit, free >= l.cap and 1 or 0)
				else
					fit = math.min(fit, math.floor(free / cost))
				end
			end
		end
		local m = math.max(math.min(n, fit, room), 0)
		if m > 0 then
			for i = 1, k do
				charge(limits[i], m * costs[i])
				limits[i].cum = limits[i].cum + m * costs[i]
			end
			granted, room = granted + m, room - m
		end
		if m < n then
			if fit > m then
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
		wait = math.max(math.min(h.rt + answer_time - now, 50000), 1)
	elseif blocked then
		for i = 1, k do
			local l, cost = limits[i], blocked[i]
			local need = math.min(cost + (cost > 0 and claim[i] or 0), l.cap)
			local short = need - available(l)
			if short > 0 then
				if l.window then
					for _, e in ipairs(l.entries) do
						short = short - e[2]
						if short <= 0 then
							wait = math.max(wait, e[1] + l.per - now)
							break
						end
					end
				else
					wait = math.max(wait, math.ceil(short / l.rate))
				end
			end
		end
		wait = math.max(wait, 1)
		-- Overdue: nothing was admitted for so long, on the whole key, but under a hold.
		if max_wait > 0 and granted == 0 then
			local patience = math.min(age, now - h.last, now - h.hold)
			if patience < max_wait then
				wait = math.min(wait, max_wait - patience)
			elseif refuse_overdue == 1 then
				probe = 2
			elseif h.probe > now then
				wait = math.min(wait, h.probe - now)
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
		h.cpid, h.carr, h.cend, h.costs = pid, arrived, now + wait + 100000, table.concat(blocked, ',')
		if k == 0 then h.cpid = '-' end
	end
elseif h.cpid == pid or h.cend <= now then
	h.cpid, h.carr, h.cend, h.costs = '-', 0, 0, '-'
end

-- Processes seen in the last ten seconds.
local processes = 0
local write = {}
if beat == 1 then
	local seen = {pid .. ':' .. now}
	for id, at in string.gmatch(got[3] or '', '([^:;]+):([^;]+)') do
		if id ~= pid and now - tonumber(at) < 10000000 then seen[#seen + 1] = id .. ':' .. string.format('%d', at) end
	end
	processes = #seen
	seen[1] = pid .. ':' .. string.format('%d', now)
	write = {'p', table.concat(seen, ';')}
end

-- All is decided: write it.
local function f(x) return string.format('%.17g', x) end
local ttl = math.max(h.hold - now, 0) + 10000000
local reply = {'ok', granted, probe, f(wait), f(math.max(h.hold - now, 0)), h.epoch, f(now), f(n_before),
	h.rs > 0 and h.rn or 0, processes, warn}
local n = #write
write[n + 1], write[n + 2], write[n + 3] = 'v', LAYOUT, 'h'
write[n + 4] = table.concat({f(h.at), h.epoch, f(h.n), f(h.hold), f(h.rn), f(h.rs), f(h.rf), f(h.rp), f(h.rt), f(h.last),
	f(h.probe), h.cpid, f(h.carr), f(h.cend), h.costs}, ' ')
n = n + 4
for i = 1, k do
	local l, level = limits[i], nil
	if l.window then
		local log = {}
		for _, e in ipairs(l.entries) do
			if e[2] > 0 then log[#log + 1] = f(e[1]) .. ':' .. f(e[2]) end
		end
		level = #log > 0 and table.concat(log, ';') or '-'
		ttl = math.max(ttl, 2 * l.per)
	else
		level = f(l.level)
		ttl = math.max(ttl, 2 * l.per, 2 * (l.cap - available(l)) / l.rate)
	end
	write[n + 1] = l.name
	write[n + 2] = table.concat({level, l.shadow and f(l.shadow) or '-', f(l.cum), f(l.extra), f(l.reporter), f(l.low_rate),
		f(l.low_cap), f(l.low_end)}, ' ')
	n = n + 2
	local r = #reply
	reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = f(available(l)), f(before[i]), f(l.extra), f(l.cap)
end
redis.call('HSET', KEYS[1], unpack(write))
redis.call('PEXPIRE', KEYS[1], string.format('%d', math.min(math.ceil(ttl / 1000), 2 ^ 52)))
return table.concat(reply, ' ')
