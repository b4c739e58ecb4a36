package sim

// What tests in package sim_test use, which may import packages that import this one.
var (
	Full     = full
	Target   = row
	Relation = relation
)
