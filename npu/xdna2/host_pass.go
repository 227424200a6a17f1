package xdna2

import "github.com/npukit/npukit/npu/op"

// Dispatch is one program of a pass: its work on the array, and what the host writes for it each time.
type Dispatch struct {
	Name  string
	Work  []Work
	Write int // bytes written and synced before each run
}

// Pass is what a prefill or a token does, layer by layer: enough to price a model before any plan of it exists.
type Pass struct {
	Layers int
	Layer  []Dispatch // of each layer
	Once   []Dispatch // the LM head

	Permute int  // bytes a layer that the host brings into another order: layouts, K and V for the cache
	Split   bool // decode: the host does the norm, the SwiGLU and the residuals of the FFN between programs

	// Decode attention on the host: query heads and key heads of a layer, their dimension, positions attended to. No heads: none.
	Heads, KVHeads, HeadDim, Keys int
}

// PassCost is a predicted pass in microseconds, by where the time goes.
type PassCost struct {
	Array     float64 // programs running
	Calls     float64 // dispatching them
	Transfers float64 // writing their inputs
	Permute   float64 // host permutations
	Attention float64 // decode attention on the host
	Host      float64 // everything else on the host
}

// Total is the time of the pass.
func (p PassCost) Total() float64 {
	return p.Array + p.Calls + p.Transfers + p.Permute + p.Attention + p.Host
}

// Prefill predicts the time to the first token.
func (c *Clock) Prefill(p Pass) (PassCost, error) {
	cost, err := c.pass(p, c.Host.PrefillCall)
	cost.Host = float64(p.Layers)*c.Host.PrefillLayer + c.Host.PrefillOnce
	return cost, err
}

// Decode predicts the time of one token.
func (c *Clock) Decode(p Pass) (PassCost, error) {
	cost, err := c.pass(p, c.Host.DecodeCall)
	cost.Host = c.Host.DecodeOnce
	if p.Split {
		cost.Host += float64(p.Layers) * c.Host.SplitLayer
	}
	if p.Heads > 0 {
		cost.Attention = float64(p.Layers) * c.Host.Attention(p.Heads, p.KVHeads, p.HeadDim, p.Keys)
	}
	return cost, err
}

func (c *Clock) pass(p Pass, call float64) (PassCost, error) {
	cost := PassCost{Permute: float64(p.Layers) * c.Host.Permute(p.Permute)}
	add := func(list []Dispatch, times float64) error {
		for _, d := range list {
			run, err := c.Run(d.Name, d.Work, op.Size{})
			if err != nil {
				return err
			}
			cost.Array += times * run.Run
			cost.Calls += times * call
			cost.Transfers += times * c.Host.Write(d.Write)
		}
		return nil
	}
	if err := add(p.Layer, float64(p.Layers)); err != nil {
		return PassCost{}, err
	}
	return cost, add(p.Once, 1)
}
