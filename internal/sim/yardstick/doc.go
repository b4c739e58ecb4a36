// Package yardstick says how good routing could be, in two ways that must not be mixed.
//
// [LowerBound] is below the mean time to first token (TTFT) of every policy, and [Reference] is what the best of some policies reaches
// that know all of the present and some of the future. A policy may beat the reference, and never the bound.
//
// # Why the bound holds
//
// It is about the engines of package engine, and about policies that get every request answered that some engine can hold. They may
// know the future, hold requests back, change their order, send copies and cancel them. Engines may be slower than their
// Config says (faults, cold starts), not faster.
//
//  1. An engine computes the tokens of a prompt in order, and those that it has found it has computed, by prompts or as an answer. So
//     if all requests with some block in their prompts came after a time t, and no answer brings it (a block that one does
//     counts as free), each engine computes it, and what follows it in any prompt, after t. A request whose first token comes
//     from that engine waits at least until that is done: for all tokens from that block to the end of its prompt, whoever asks for
//     them, also one that comes later. The last token is computed in any case, and with it, but for slots, its block of the engine.
//  2. Engines that work in steps take time that adds up: a token costs the same in whichever chunk it is computed, attention costs
//     Pair·(to² - from²), and n tokens need ⌈n/StepTokens⌉ steps. FIFO charges Pair·n² for n tokens of one prompt and no
//     attention to what it found, so parts are cheaper than the whole. If nobody else that came before asks for what is new in a prompt,
//     either it is computed in one piece, or the request waited for another one; otherwise the cost is that of the best number of equal
//     pieces, each with its base, or of the parts that no two prompts share in part, each in one piece, whichever is more.
//  3. Alone is the mean over requests of the largest of these bounds over the blocks of the prompt, on the engine for which it is least.
//  4. Fleet-wide, each block that no answer brings is computed at least once, after the first request with it came. Charge
//     that first time to that request. It, and the rest of its prompt that has no hash, is done when that request has its first token. An
//     engine that is never idle shares its base among at most StepTokens tokens a step, so the charge is work of Token +
//     Base/StepTokens for each token and attention as in 2 (FIFO: a base for each request, and each part in one piece). Engines do at
//     most as many seconds of such work as time passes; one whose costs are all x times the least of the fleet does a 1/x. So all of them
//     are no faster than one server of their summed speed that may interrupt a request and go on with it later, and on that
//     shortest remaining work first has the least mean time in system (Schrage 1968): Pooled.
//  5. The work charged to one request is done in the order of its prompt, so never faster than at speed 1, and the request takes as
//     long as 3 says at least. Give engine time a price that changes with time. If each request pays for its work, no policy
//     has a smaller sum of times in system and payments than one under which each request chooses for itself when its work is done; and all
//     payments together are at most the price of all engine time. So the sum of what requests choose, less that, is a bound, whatever the
//     prices are (Lagrangian relaxation). They begin as those of the pooled server by shortest whole work first, which fit the mean times
//     of being worked on (Goemans 1997), and go up where more is asked for than there is, and down elsewhere. The best is Priced.
//  6. What is not measured can only be left out. The requests of the burn-in came before, and what they bring counts as there; their own
//     work counts as nothing. So each of the bounds holds over any window of arrivals.
//
// # What caches cannot keep
//
// Evicting adds what is computed again because caches forget. It does not follow from the best order of evictions (Belady), for a policy
// may let requests wait until like ones come together. Instead:
//
//  7. A block is on an engine from when it is computed until it is forgotten. Of the requests that have their first tokens from there in
//     that time, all but the one that computed it may be hits. Let u be when the first of them to come had its first token, and t when the
//     last of them came. From u to t the block takes room, and between the arrival of the first and t there are as many gaps between
//     arrivals of requests with this block as there are hits. So over all blocks, the gaps of the hits add up to at most the room of all
//     engines over the time that is measured, and for each request the time that it waits for its first token times the blocks that it
//     shares. The mean of these waits is what is to be bounded; so the bound is the mean that fits itself.
//  8. Keeping the gaps that spare the most for their room, parts of gaps too, is the most that can be spared. What is not spared a request
//     computes itself, beside what 2 says, but its last block, which it computes in any case.
//  9. FIFO lets a prompt's blocks be forgotten while it is computed or decodes, and enters them again when that ends: such times need no
//     room. The first request to ask for what an answer brings counts as finding it.
//
// What a preempted sequence or a copy of a request computes is not among the misses that 8 counts, and others may find it; and requests
// of a burn-in could be left to wait for ever. Hence the conditions of Evicting, and hence it is not part of [Bound.TTFT].
//
// What no bound counts: that decoding takes part in the steps of prompts and fills memory, that a step is not left while it runs,
// and that an engine has only what was computed on it.
package yardstick
