// Package study compares routing policies: it plays one workload to one fleet under several policies, with several seeds, and
// says how sure the differences are.
//
// A Row is an experiment: a Workload, engines, how busy they are, and what balancers know. Prepare finds the rate of arrivals that
// makes the fleet as busy as the Row says, and how long to play; Prepared.Run plays it under one Policy with one seed to an
// Outcome. Outcomes of one seed saw the same requests at the same times whatever the policy, so Difference and Ratio pair them.
//
// # How busy is busy
//
// Rho is the work that arrives over the work that the fleet can do, where the work of a request is what its prompt and its answer
// take of an engine that is kept full (see Work), with every prefix that came before in a cache: no policy can make do with
// less. A row of rho 1 or more overloads the fleet under every policy; one below 1 may still be overloaded under a policy
// that finds few prefixes, or whose caches are too small. With the basis NoCache rho is the work without any cache, as some
// published figures have it; then rows above 1 can be stable.
package study
