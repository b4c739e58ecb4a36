package drill

var (
	networkRows []Row
)
