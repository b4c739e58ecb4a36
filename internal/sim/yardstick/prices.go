package yardstick

import (
	"math"
	"slices"
)

// market bounds the sum of the times in system of tasks on engines that together are of some speed, where no task is worked on faster than at
// speed 1, nor is in the system for less than its alone. Engine time gets a price that changes with time; each task pays for the
// work that it takes, and chooses when, so that the time in the system and what it pays are least. The sum over tasks less the price of all
// engine time is a bound, whatever the prices are (Lagrange): they are raised where more is asked for than there is.
type market struct {
	tasks []task
	speed float64

	start, cell float64   // of prices: when the first holds, and for how long each does
	price       []float64 // seconds of waiting for a second of work; after the last it is 0
	asked       []float64 // seconds of work

	parts []part // scratch: what a task takes, the dearest last
}

// part is work that a task takes at a price.
type part struct {
	price, work float64
	cell        int
}

const (
	rounds    = 20     // of prices
	mostCells = 50_000 // of prices

	// How far a price is moved in the first round where nothing is asked for, as seconds of waiting for a second of work and as a share of
	// it. Other values give other bounds; with these, 20 rounds come within 1 % of what 200 do, for traces at all loads.
	slowly, quickly = .5, .03
)

func newMarket(tasks []task, speed float64) *market {
	m := &market{tasks: tasks, speed: speed}
	total := 0.0
	for i := range tasks {
		total += tasks[i].work
	}
	if total == 0 {
		return m
	}
	m.start = tasks[0].at
	span := tasks[len(tasks)-1].at - m.start + total/speed
	m.cell = max(total/float64(len(tasks)), span/mostCells)
	m.price = make([]float64, int(span/m.cell)+1)
	m.asked = make([]float64, len(m.price))
	m.begin()
	return m
}

// begin sets the prices that fit one server of the whole speed, by shortest whole work first, where a task's mean time of being worked on
// counts. While it works on a task, the price falls by what the task loses by waiting, 1/work; it rises when a shorter one comes, so that it
// is the same for all times of the task but for what it loses; and it is 0 when there is nothing to do.
func (m *market) begin() {
	type turn struct {
		slot
		task int
	}
	var turns []turn
	serve(m.tasks, m.speed, true, func(i int, _ *task, s slot) { turns = append(turns, turn{s, i}) })
	worth := make([]float64, len(m.tasks)) // of the task at time 0, once it is known
	next, price := math.Inf(1), 0.0        // when the turn after begins, and the price then
	for _, t := range slices.Backward(turns) {
		work := m.tasks[t.task].work
		if t.done {
			if t.to < next { // then it is idle
				price = 0
			}
			worth[t.task] = price + t.to/work
		}
		price, next = worth[t.task]-t.from/work, t.from
		for at := t.from; at < t.to; {
			c, end, _ := m.find(at)
			if c == len(m.price) {
				break
			}
			end = min(end, t.to)
			m.price[c] += max(0, worth[t.task]-(at+end)/2/work) * (end - at) / m.cell
			at = end
		}
	}
}

// bound returns the best bound that is found.
func (m *market) bound() float64 {
	best := 0.0
	for round := range rounds {
		clear(m.asked)
		sum := 0.0
		for i := range m.tasks {
			sum += m.choose(&m.tasks[i])
		}
		there := m.speed * m.cell
		for c, p := range m.price {
			sum -= p * there
			m.price[c] = max(0, p+(m.asked[c]/there-1)*(slowly+quickly*p)/math.Sqrt(float64(round+1)))
		}
		best = max(best, sum)
	}
	return best
}

// choose returns the least that a task can wait and pay together, and asks for what it then takes.
func (m *market) choose(t *task) float64 {
	if t.work == 0 {
		return t.alone
	}
	least, end := m.wait(t, math.Inf(1))
	m.wait(t, end)
	for _, p := range m.parts {
		if p.cell < len(m.asked) {
			m.asked[p.cell] += p.work
		}
	}
	return least
}

// wait finds the least that a task can wait and pay together if it ends by a time, and when it ends then. It leaves what it takes if it ends
// by that time.
func (m *market) wait(t *task, by float64) (least, end float64) {
	m.parts = m.parts[:0]
	at, taken, paid := t.at, 0.0, 0.0
	for soonest := t.at + max(t.alone, t.work); at < soonest; {
		c, to, price := m.find(at)
		to = min(to, soonest)
		m.take(part{price, to - at, c})
		taken, paid, at = taken+to-at, paid+price*(to-at), to
		for taken > t.work { // it gives back the dearest
			n := min(m.parts[len(m.parts)-1].work, taken-t.work)
			taken, paid = taken-n, paid-n*m.give(n)
		}
	}
	least, end = at-t.at+paid, at
	for at < by && at-t.at < least && paid > 0 { // later may be cheaper
		c, to, price := m.find(at)
		to = min(to, by)
		for at < to && m.parts[len(m.parts)-1].price > price {
			n := min(m.parts[len(m.parts)-1].work, to-at)
			at, paid = at+n, paid-n*(m.give(n)-price)
			m.take(part{price, n, c})
			if x := at - t.at + paid; x < least {
				least, end = x, at
			}
		}
		at = to
	}
	return least, end
}

// give gives back work at the highest price, which it returns; no more than is taken at that.
func (m *market) give(n float64) (price float64) {
	last := &m.parts[len(m.parts)-1]
	price = last.price
	if last.work -= n; last.work <= 0 {
		m.parts = m.parts[:len(m.parts)-1]
	}
	return price
}

// find returns the price at a time, and until when it holds.
func (m *market) find(at float64) (cell int, end, price float64) {
	cell = int((at - m.start) / m.cell)
	if cell >= len(m.price) {
		return len(m.price), math.Inf(1), 0
	}
	end = m.start + float64(cell+1)*m.cell
	if end <= at { // rounding
		cell++
		end += m.cell
		if cell == len(m.price) {
			return cell, math.Inf(1), 0
		}
	}
	return cell, end, m.price[cell]
}

// take adds work at a price.
func (m *market) take(p part) {
	i := len(m.parts)
	for i > 0 && m.parts[i-1].price > p.price {
		i--
	}
	if i > 0 && m.parts[i-1].cell == p.cell {
		m.parts[i-1].work += p.work
		return
	}
	m.parts = slices.Insert(m.parts, i, p)
}
