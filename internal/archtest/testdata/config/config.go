// Package config stands for one of our packages that is not pure; the fixtures import it.
package config

import "time"

var Now = time.Now

const Limit = 3

type Clock struct{ Start time.Time }

func (c Clock) Add(d time.Duration) time.Time { return c.Start.Add(d) }

func New() Clock { return Clock{Start: time.Now()} }
