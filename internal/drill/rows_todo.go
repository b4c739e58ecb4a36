package drill

var (
	healthRows, overloadRows, networkRows []Row
)
