/** What every pipeline of the bench is set to. */

/** Calls at once. */
export const concurrency = 64

/** A rate, a queue, a number of points that nobody ever uses up in a run. */
export const plenty = 1_000_000_000

/** Retries after the first attempt; none is ever made, but each pipeline is ready to. */
export const retries = 3

/** The longest a call may take; none ever takes that long, but each call is timed. */
export const timeoutMillis = 60_000
