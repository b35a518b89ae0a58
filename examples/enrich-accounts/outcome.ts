/** What a run came to, governed or not, as one object with the same fields. */
import type { Fleet } from "espalier"
import type { NodeReport, Report } from "espalier/Report"
import type { Account } from "./accounts.ts"

export interface Outcome {
  readonly mode: "governed" | "naive"
  readonly accounts: number
  readonly completed: number
  readonly partial: number
  readonly failed: number
  readonly rejected: number
  readonly interrupted: number
  readonly deferred: number
  readonly deadLettered: number
  readonly expired: number
  readonly unfinished: ReadonlyArray<{ readonly input: string; readonly reason: string }>
  readonly tokensGranted: number
  readonly tokensSpent: number
  /** What the model server counted itself; null with a real provider. */
  readonly tokensServed: number | null
  /** Calls of which the truth never came, charged at what they had held. */
  readonly estimated: number
  /** Null when the provider's prices are not known. */
  readonly usdSpent: number | null
  readonly calls: number
  readonly throttled: number
  readonly retries: number
  readonly maxInFlight: number
  readonly maxDepth: number
  readonly wallSeconds: number
  /** Why the campaign as a whole failed; null when it came to its end, however much it could do. */
  readonly failure: string | null
  readonly cutOff: ReadonlyArray<string>
}

const seconds = (millis: number): number => Math.round(millis / 100) / 10

/** Reads a tree's report; an account that no node was made for was not started, and says why. */
export const fromReport = (
  report: Report,
  accounts: ReadonlyArray<Account>,
  tokensGranted: number,
  served: number | null,
  priced: boolean,
  drained: Fleet.Drained | undefined
): Outcome => {
  const nodes = new Map<string, NodeReport>()
  for (const node of report.nodeReports)
    if (node.agent === "Enrich" && node.label !== undefined) nodes.set(node.label, node)
  const ended = (state: NodeReport["state"]): number =>
    [...nodes.values()].filter((node) => node.state === state).length
  const notStarted = accounts.filter(({ symbol }) => !nodes.has(symbol))
  return {
    mode: "governed",
    accounts: accounts.length,
    completed: ended("Completed"),
    partial: ended("Partial"),
    failed: ended("Failed"),
    rejected: ended("Rejected") + notStarted.length,
    interrupted: ended("Interrupted"),
    deferred: ended("Deferred"),
    deadLettered: ended("DeadLettered"),
    expired: ended("Expired"),
    unfinished: [
      ...[...nodes]
        .filter(([, node]) => node.state !== "Completed")
        .map(([input, node]) => ({ input, reason: `${node.state}: ${node.reason ?? ""}` })),
      ...notStarted.map(({ symbol }) => ({
        input: symbol,
        reason: `Rejected: not started, the campaign ended as ${report.state}${report.reason === undefined ? "" : ` (${report.reason})`}`
      }))
    ],
    tokensGranted,
    tokensSpent: report.subtree.tokens,
    tokensServed: served,
    estimated: report.estimated,
    usdSpent: priced ? report.subtree.microDollars / 1_000_000 : null,
    calls: report.calls,
    throttled: report.throttled,
    retries: report.retries,
    maxInFlight: report.maxInFlight,
    maxDepth: report.maxDepth,
    wallSeconds: seconds(report.millis),
    failure: report.state === "Failed" ? (report.reason ?? "no reason") : null,
    cutOff: drained?.cutOff.map((node) => node.label ?? node.agent) ?? []
  }
}

/** A campaign that the fleet refused: nothing was started, and every account has that reason. */
export const refused = (accounts: ReadonlyArray<Account>, tokensGranted: number, reason: string): Outcome => ({
  mode: "governed",
  accounts: accounts.length,
  completed: 0,
  partial: 0,
  failed: 0,
  rejected: accounts.length,
  interrupted: 0,
  deferred: 0,
  deadLettered: 0,
  expired: 0,
  unfinished: accounts.map(({ symbol }) => ({ input: symbol, reason: `Rejected: not started, ${reason}` })),
  tokensGranted,
  tokensSpent: 0,
  tokensServed: 0,
  estimated: 0,
  usdSpent: 0,
  calls: 0,
  throttled: 0,
  retries: 0,
  maxInFlight: 0,
  maxDepth: 0,
  wallSeconds: 0,
  failure: null,
  cutOff: []
})

/** The run in plain words: what is done, what is not and why, what it cost. */
export const format = (outcome: Outcome): string => {
  const reasons = new Map<string, Array<string>>()
  for (const { input, reason } of outcome.unfinished) {
    // Numbers differ from one refusal to the next; the kind is what a person wants counted.
    const kind = reason.replace(/\d+( free in)/, "too few$1")
    reasons.set(kind, [...(reasons.get(kind) ?? []), input])
  }
  const money = outcome.usdSpent === null ? "cost unknown (no prices given)" : `$${outcome.usdSpent.toFixed(4)}`
  const served = outcome.tokensServed === null ? "" : `, the server counted ${outcome.tokensServed}`
  const lines = [
    "",
    `${outcome.mode}: ${outcome.completed} of ${outcome.accounts} accounts enriched in ${outcome.wallSeconds} s`,
    `  tokens   ${outcome.tokensSpent} spent of ${outcome.tokensGranted} granted${served} (${outcome.estimated} calls estimated), ${money}`,
    `  calls    ${outcome.calls}, ${outcome.throttled} throttled, ${outcome.retries} retries, at most ${outcome.maxInFlight} in flight`,
    `  not done ${outcome.unfinished.length}: ${outcome.failed} failed, ${outcome.rejected} rejected, ${outcome.interrupted} interrupted, ${outcome.expired} expired, ${outcome.partial} partial`
  ]
  for (const [reason, inputs] of [...reasons].sort((a, b) => b[1].length - a[1].length).slice(0, 8)) {
    lines.push(`    ${inputs.length} x ${reason} (${inputs.slice(0, 5).join(", ")}${inputs.length > 5 ? ", ..." : ""})`)
  }
  if (outcome.cutOff.length > 0) lines.push(`  cut off by the shutdown: ${outcome.cutOff.join(", ")}`)
  return lines.join("\n")
}
