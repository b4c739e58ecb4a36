package route

import "cmp"

// Price is what requests cost at a deployment: dollars per million tokens, and dollars for each request. Zero costs nothing.
type Price struct {
	Input       float64
	CachedInput float64 // 0 = as Input
	Output      float64
	Request     float64
}

// Of is what a request costs, in dollars: of so many prompt tokens, of which some are cached, and so many of output.
func (p *Price) Of(prompt, cached, output int) float64 {
	return (float64(prompt-cached)*p.Input+float64(cached)*cmp.Or(p.CachedInput, p.Input)+float64(output)*p.Output)/1e6 + p.Request
}

// negative also refuses what is no number.
func (p *Price) negative() bool {
	return !(p.Input >= 0 && p.CachedInput >= 0 && p.Output >= 0 && p.Request >= 0)
}
