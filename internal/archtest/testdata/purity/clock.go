// Package fixture breaks the rules of purity. Each line that must be found says so; every other line must pass.
package fixture

import (
	"time"
	. "time" // a dot import
	t "time" // an alias
)

type deadline struct{ at t.Time }

var clock = time.Now // want time.Now

var zone = time.Local // want time.Local

func read(start time.Time) {
	_ = time.Now()          // want time.Now
	_ = t.Since(start)      // want time.Since
	_ = Until(start)        // want time.Until
	f := t.Now              // want time.Now
	_ = start.Local()       // want time.Time.Local
	g := time.Time.Local    // want time.Time.Local
	_, _ = f, g             //
	_ = (time.Now)().Unix   // want time.Now
	_ = []any{Now}          // want time.Now
	_ = start.Add(Second)   //
	_ = time.Unix(0, 0)     //
	_ = deadline{at: start} //
}

func wait(d time.Duration) {
	time.Sleep(d)                   // want time.Sleep
	<-time.After(d)                 // want time.After
	<-t.Tick(d)                     // want time.Tick
	_ = AfterFunc(d, func() {})     // want time.AfterFunc
	_ = time.NewTimer(d)            // want time.NewTimer
	_ = time.NewTicker(d)           // want time.NewTicker
	_, _ = time.LoadLocation("UTC") // want time.LoadLocation
}

type timers struct {
	*time.Timer              // want time.Timer
	every       *time.Ticker // want time.Ticker
}

type alias = t.Timer // want time.Timer

func (x timers) stop() bool { return x.Stop() } // want time.Timer.Stop

// A name of an import that means something else here is no breach.
func shadow(time struct{ Now func() int }) int { return time.Now() }
