package drill

// undefendedVariable names, in the environment of a program that was built with the changes of testdata/undefended,
// the one that holds. The program as it is knows nothing of it.
const undefendedVariable = "EVENKEEL_UNDEFENDED"
