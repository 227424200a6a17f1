package defect

// gathers are the bugs of Embed and Pick.
func gathers() []*Defect {
	return []*Defect{
		{
			Name: "embed-row-before", Op: "Embed", Model: llama,
			Description: "ids from 128 on fetch the row before theirs: the offset is rounded down where it no " +
				"longer fits seven bits",
			Launches: []string{"embed.embed"}, First: "embed.embed",
			replace: func(k *Kernel) {
				k.rows(func(r int) []float32 {
					id := k.Operands[0].Index(r)
					if id >= 128 {
						id--
					}
					return k.Operands[1].Row(id)
				})
			},
		},
		{
			Name: "pick-row-before", Op: "Pick", Model: smol,
			Description: "the picked row is counted from one, so that each pick gets the row before it",
			Launches:    []string{"head.pick"}, First: "head.pick",
			replace: func(k *Kernel) {
				k.rows(func(r int) []float32 { return k.Operands[1].Row(max(0, k.Operands[0].Index(r)-1)) })
			},
		},
	}
}
