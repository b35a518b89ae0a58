/** Progress on the terminal: one line that is rewritten, or a line now and then when it is not a terminal. */
import { Effect } from "effect"
import { Fleet } from "espalier"

const bar = (share: number): string => {
  const full = Math.round(Math.min(1, share) * 20)
  return `[${"#".repeat(full)}${".".repeat(20 - full)}]`
}

const line = (snapshot: Fleet.Snapshot, accounts: number, elapsedMillis: number): string | undefined => {
  const task = snapshot.tasks[0]
  if (task === undefined) return undefined
  const { ended } = task
  const done = Object.values(ended).reduce((sum, count) => sum + count, 0)
  const share = task.granted.tokens === undefined ? 0 : task.spent.tokens / task.granted.tokens
  const eta = done < 5 ? "?" : `${Math.ceil(((accounts - done) * elapsedMillis) / done / 1_000)} s`
  return [
    `${bar(done / accounts)} ${done}/${accounts}`,
    `${ended.Completed} done, ${done - ended.Completed} not, ${task.live} agents live`,
    `tokens ${task.spent.tokens}/${task.granted.tokens ?? "unlimited"} (${Math.round(share * 100)} %)`,
    `${task.inFlight} calls in flight, ${task.waiting} waiting`,
    `retries ${task.retries}, throttled ${task.throttled}`,
    `ETA ${eta}`
  ].join(" | ")
}

/** Writes to standard error until interrupted, so that standard output holds the result alone. */
export const show = (accounts: number): Effect.Effect<never, never, Fleet.Fleet> =>
  Effect.gen(function* () {
    const tty = process.stderr.isTTY === true
    let elapsed = 0
    const every = tty ? 500 : 5_000
    for (;;) {
      yield* Effect.sleep(every)
      elapsed += every
      const text = line(yield* Fleet.snapshot, accounts, elapsed)
      if (text !== undefined)
        process.stderr.write(tty ? `\r\u001b[2K${text.slice(0, (process.stderr.columns ?? 120) - 1)}` : `${text}\n`)
    }
  }).pipe(Effect.ensuring(Effect.sync(() => process.stderr.write(process.stderr.isTTY === true ? "\r\u001b[2K" : ""))))
