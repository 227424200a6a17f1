package gate

// Names for the tests in package gate_test.
const (
	Elements    = metricElements
	Blind       = metricBlind
	MaxAbs      = metricMaxAbs
	MaxRel      = metricMaxRel
	RelL2       = metricRelL2
	Peak        = metricPeak
	WorstRow    = metricWorstRow
	Pearson     = metricPearson
	Cosine      = metricCosine
	WorstCosine = metricWorstCosine
	SignalNoise = metricSQNR
	P90KL       = metricP90KL
	MaxKL       = metricMaxKL
	Top1        = metricTop1
	NLLShift    = metricNLL
	TwoWayTop   = metricTwoWayTop
	Distinct    = metricDistinct
)

// Validate is validate.
func (t Tolerance) Validate() error { return t.validate() }

// Observe is observe.
func Observe[G, W Element](t *Trace, name string, got []G, want []W, width int) error {
	return observe(t, name, got, want, width)
}

// Measure computes the metrics without judging them.
func Measure[G, W Element](got []G, want []W, width int) (Metrics, error) {
	c, err := compare(got, want, width, Tolerance{})
	if err != nil {
		return Metrics{}, err
	}
	return c.report().Metrics, nil
}

// Noise returns the noise of a number format by its recording.
func (r *Recording) Noise() float64 { return r.noise.Exact.L1 }
