// Package quota counts what may be used per time. It is pure: every call takes the time.
package quota

import (
	"math"
	"time"
)

// Bucket is a token bucket: it holds at most Size units and gains Rate units per second. It starts full. An amount
// larger than the bucket passes when the bucket is full, and leaves it in debt. The zero value has no limit. It is not
// safe for concurrent use.
type Bucket struct {
	size, rate float64
	level      float64
	at         time.Time
}

// PerMinute returns a full bucket that holds a minute's worth of n units; 0 is no limit.
func PerMinute(n int) Bucket {
	return Bucket{size: float64(n), rate: float64(n) / 60, level: float64(n)}
}

// SetPerMinute changes the limit to n units per minute. What was used stays used: a level keeps its distance from full. But
// a lower limit makes nobody wait longer than a minute for what was allowed before.
func (b *Bucket) SetPerMinute(now time.Time, n int) {
	b.Take(now, 0) // what came until now came at the old rate
	used, debt := b.size-b.level, 0.0
	if b.Limited() {
		debt = -b.level / b.rate // seconds
	}
	b.size, b.rate = float64(n), float64(n)/60
	b.level = b.size - used
	if b.Limited() {
		b.level = max(b.level, -b.rate*max(debt, 60))
	}
}

// Limited reports whether there is a limit.
func (b *Bucket) Limited() bool { return b.size > 0 }

// Wait returns how long it takes until n units may be taken, 0 if they may be now.
func (b *Bucket) Wait(now time.Time, n float64) time.Duration {
	if !b.Limited() {
		return 0
	}
	lacking := min(n, b.size) - b.filled(now)
	if lacking <= epsilon {
		return 0
	}
	return time.Duration(math.Ceil(lacking / b.rate * float64(time.Second)))
}

// epsilon is what sums of rates may be short by.
const epsilon = 1e-6

// Take takes n units, whether they are there or not. A negative n gives back.
func (b *Bucket) Take(now time.Time, n float64) {
	if !b.Limited() {
		return
	}
	b.level = min(b.filled(now)-n, b.size)
	if now.After(b.at) {
		b.at = now
	}
}

// Left returns how many units may be taken now; less than 0 while the bucket is in debt.
func (b *Bucket) Left(now time.Time) float64 { return b.filled(now) }

func (b *Bucket) filled(now time.Time) float64 {
	if b.at.IsZero() || !now.After(b.at) {
		return b.level
	}
	return min(b.size, b.level+now.Sub(b.at).Seconds()*b.rate)
}
