/**
 * @title Enrich 400 accounts under a budget
 *
 * An orchestrator plans, one sub-agent works on each account, all over HTTP: to a model server and to a tool server that
 * takes thirty requests a second and fails now and then, both started here, or to a real provider.
 */
import { NodeHttpClient, NodeServices } from "@effect/platform-node"
import { Config, Console, Deferred, Duration, Effect, Fiber, Layer, Option, Redacted, Schema } from "effect"
import { CliError, Command, Flag } from "effect/cli"
import { Fleet } from "espalier"
import * as Spend from "espalier/Spend"
import { ModelServer, ToolServer } from "espalier/testing"
import { fileURLToPath } from "node:url"
import { type Account, load } from "./accounts.ts"
import { Campaign } from "./agents.ts"
import { join, presenter } from "./cli.ts"
import { Model, Provider } from "./model.ts"
import * as Naive from "./naive.ts"
import { format, fromReport, type Outcome, refused } from "./outcome.ts"
import { show } from "./progress.ts"
import { Crm, CrmUrl, routes } from "./tools.ts"

/** The model server's own price list, in micro-dollars a million tokens. */
const localPrices = { input: 150_000, output: 600_000 }
const urls = { openai: "https://api.openai.com", anthropic: "https://api.anthropic.com" }
const keys = { openai: "OPENAI_API_KEY", anthropic: "ANTHROPIC_API_KEY" }

const TokenCount = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))
const Positive = Schema.String.pipe(
  Schema.check(
    Schema.makeFilter((text: string) => {
      const duration = Duration.fromInput(text as Duration.Input)
      return Option.isSome(duration) && Duration.toMillis(duration.value) > 0
        ? undefined
        : `must be a duration above zero from now, such as "50 seconds", got "${text}"`
    })
  )
)

const flags = {
  accounts: Flag.Int("accounts").pipe(
    Flag.withDescription("How many accounts, from 1 to 503"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 503 }))),
    Flag.withDefault(400)
  ),
  tokens: Flag.Int("tokens").pipe(
    Flag.withDescription("Token budget of the whole tree; the default does not quite reach for all"),
    Flag.withSchema(TokenCount),
    Flag.optional
  ),
  usd: Flag.Finite("usd").pipe(
    Flag.withDescription("Money budget of the whole tree in dollars; default none"),
    Flag.withSchema(Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1e9 }))),
    Flag.optional
  ),
  depth: Flag.Int("depth").pipe(
    Flag.withDescription("How deep agents may be nested, from 0 to 64"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 64 }))),
    Flag.withDefault(4)
  ),
  deadline: Flag.String("deadline").pipe(
    Flag.withDescription('Deadline from now, such as "55 seconds"'),
    Flag.withSchema(Positive),
    Flag.withDefault("58 seconds")
  ),
  priority: Flag.Int("priority").pipe(
    Flag.withDescription("Tier, from 0 (must ship) to 3 (nice to have)"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 }))),
    Flag.withDefault(1)
  ),
  seed: Flag.Int("seed").pipe(
    Flag.withDescription("Seed of the servers' replies, delays and faults"),
    Flag.withDefault(1)
  ),
  port: Flag.Int("port").pipe(
    Flag.withDescription("Port of the model server; 0 takes a free one"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65_535 }))),
    Flag.withDefault(0)
  ),
  file: Flag.String("file").pipe(
    Flag.withDescription("CSV of accounts"),
    Flag.withDefault(fileURLToPath(new URL("accounts.csv", import.meta.url)))
  ),
  naive: Flag.Boolean("naive").pipe(
    Flag.withDescription("Run it the way it is written first"),
    Flag.withDefault(false)
  ),
  json: Flag.Boolean("json").pipe(Flag.withDescription("End in one line of JSON"), Flag.withDefault(false)),
  provider: Flag.Literals("provider", ["local", "openai", "anthropic"]).pipe(
    Flag.withDescription("Who answers: the model server here, or a real provider with its key in the environment"),
    Flag.withDefault("local")
  ),
  model: Flag.String("model").pipe(Flag.withDescription("Model of a real provider"), Flag.optional),
  priceIn: Flag.Finite("price-in").pipe(Flag.withDescription("Dollars a million input tokens"), Flag.optional),
  priceOut: Flag.Finite("price-out").pipe(Flag.withDescription("Dollars a million output tokens"), Flag.optional)
}

class UsageError extends Schema.TaggedError<UsageError>()("UsageError", { text: Schema.String }) {
  override get message(): string {
    return this.text
  }
}

interface Chosen {
  readonly provider: "local" | "openai" | "anthropic"
  readonly model: Option.Option<string>
  readonly priceIn: Option.Option<number>
  readonly priceOut: Option.Option<number>
  readonly usd: Option.Option<number>
  readonly naive: boolean
}

const price = (flag: string, dollars: number): Effect.Effect<number, UsageError> =>
  dollars >= 0 && dollars <= 1e6
    ? Effect.succeed(Math.round(dollars * 1_000_000))
    : Effect.fail(new UsageError({ text: `--${flag} must be dollars from 0 to 1000000, got ${dollars}` }))

/** Whom to ask, before its address is known. */
type Remote = Omit<Provider["Service"], "url"> & { readonly url: string | undefined }

/** The provider to talk to; a real one needs a model and a key, and says so before anything is started. */
const providerOf = (chosen: Chosen): Effect.Effect<Remote, UsageError | Config.ConfigError> =>
  Effect.gen(function* () {
    const { model, priceIn, priceOut, provider: kind } = chosen
    if (Option.isSome(priceIn) !== Option.isSome(priceOut))
      return yield* new UsageError({ text: "--price-in and --price-out go together" })
    const prices =
      Option.isSome(priceIn) && Option.isSome(priceOut)
        ? { input: yield* price("price-in", priceIn.value), output: yield* price("price-out", priceOut.value) }
        : undefined
    if (kind === "local") {
      if (prices !== undefined || Option.isSome(model))
        return yield* new UsageError({
          text: "--model, --price-in and --price-out go with --provider openai or anthropic"
        })
      const key = Redacted.make("none")
      return { kind: "openai", isLocal: true, url: undefined, model: "local", key, prices: localPrices }
    }
    if (chosen.naive) return yield* new UsageError({ text: "--naive runs against the local model server only" })
    if (Option.isNone(model)) return yield* new UsageError({ text: `--provider ${kind} needs --model` })
    const key = yield* Config.option(Config.Redacted(keys[kind]))
    if (Option.isNone(key))
      return yield* new UsageError({ text: `--provider ${kind} needs ${keys[kind]} in the environment` })
    if (Option.isSome(chosen.usd) && prices === undefined)
      return yield* new UsageError({ text: `--usd with --provider ${kind} needs --price-in and --price-out` })
    return { kind, isLocal: false, url: urls[kind], model: model.value, key: key.value, prices }
  })

/** About 245 tokens an account is what they take; with a twentieth less the budget does not quite reach for all. */
const budgetFor = (accounts: number): number => Math.max(3_000, accounts * 234)

const governed = (
  accounts: ReadonlyArray<Account>,
  tokens: number,
  terms: Pick<Fleet.SubmitOptions, "microDollars" | "depth" | "priority"> & { readonly deadline: string },
  provider: Provider["Service"],
  crmUrl: string,
  served: Effect.Effect<number | null>
): Effect.Effect<Outcome, unknown> =>
  Effect.gen(function* () {
    const handle = yield* Fleet.submit(Campaign, accounts, {
      ...terms,
      tokens,
      deadline: terms.deadline as Duration.Input
    })
    const drained = yield* Deferred.make<Fleet.Drained>()
    const signals = yield* Effect.forkScoped(
      Effect.flatMap(Fleet.drainOnSignal(["SIGTERM", "SIGINT"], "5 seconds"), (found) =>
        Deferred.succeed(drained, found)
      )
    )
    const progress = yield* Effect.forkScoped(show(accounts.length))
    const report = yield* handle.report
    yield* Fiber.interrupt(progress)
    const snapshot = yield* Fleet.snapshot
    const cut = snapshot.draining ? yield* Deferred.await(drained) : undefined
    yield* Fiber.interrupt(signals)
    return fromReport(report, accounts, tokens, yield* served, provider.prices !== undefined, cut)
  }).pipe(
    Effect.catchTag("Rejected", (rejected) => Effect.succeed(refused(accounts, tokens, rejected.message))),
    Effect.scoped,
    Effect.provide(
      Layer.mergeAll(
        Fleet.layer({ places: 64, grace: "5 seconds" }),
        Model.layer,
        Crm.layer,
        NodeHttpClient.layerUndici,
        Layer.succeed(Provider, provider),
        Layer.succeed(CrmUrl, crmUrl)
      )
    )
  )

const naive = (
  accounts: ReadonlyArray<Account>,
  tokens: number,
  model: ModelServer.ModelServer["Service"],
  crmUrl: string
): Effect.Effect<Outcome> =>
  Effect.gen(function* () {
    const [duration, { counted, unfinished }] = yield* Effect.timed(
      Effect.promise(() => Naive.run(model.url, crmUrl, accounts))
    )
    const stats = yield* model.stats
    const cost = (stats.inputTokens * localPrices.input + stats.outputTokens * localPrices.output) / 1_000_000
    return {
      mode: "naive",
      accounts: accounts.length,
      completed: accounts.length - unfinished.length,
      partial: 0,
      failed: unfinished.length,
      rejected: 0,
      interrupted: 0,
      deferred: 0,
      deadLettered: 0,
      expired: 0,
      unfinished,
      tokensGranted: tokens,
      tokensSpent: stats.totalTokens,
      tokensServed: stats.totalTokens,
      estimated: 0,
      usdSpent: Math.ceil(cost) / 1_000_000,
      calls: counted.calls,
      throttled: counted.throttled,
      retries: counted.retries,
      maxInFlight: counted.maxInFlight,
      maxDepth: 0,
      wallSeconds: Math.round(Duration.toMillis(duration) / 100) / 10,
      failure: null,
      cutOff: []
    }
  })

const command = Command.make(
  "enrich-accounts",
  flags,
  Effect.fnUntraced(function* (input) {
    const remote = yield* providerOf(input)
    const accounts = yield* load(input.file, input.accounts)
    const tokens = Option.getOrElse(input.tokens, () => budgetFor(accounts.length))
    const model = yield* ModelServer.make({
      port: input.port,
      seed: input.seed,
      maxConcurrency: 32,
      requestsPerMinute: 3_000,
      tokensPerMinute: 2_000_000,
      baseMillis: 150,
      outputTokensPerSecond: 250,
      faults: { error: 0.005 }
    })
    const tools = yield* ToolServer.make({
      seed: input.seed,
      routes: routes(accounts),
      requestsPerSecond: 30,
      latencyMillis: 80,
      failShare: 0.01
    })
    const provider = Provider.of({ ...remote, url: remote.url ?? model.url })
    const terms = {
      deadline: input.deadline,
      priority: input.priority,
      depth: input.depth,
      ...(Option.isSome(input.usd) ? { microDollars: Spend.fromDollars(input.usd.value) } : {})
    }
    const served =
      input.provider === "local" ? Effect.map(model.stats, (stats) => stats.totalTokens) : Effect.succeed(null)
    const outcome = input.naive
      ? yield* naive(accounts, tokens, model, tools.url)
      : yield* governed(accounts, tokens, terms, provider, tools.url, served)
    yield* input.json ? Console.error(format(outcome)) : Console.log(format(outcome))
    if (input.json) yield* Console.log(JSON.stringify(outcome))
    if (outcome.failure !== null) return yield* new UsageError({ text: `the campaign failed: ${outcome.failure}` })
  }, Effect.scoped)
)

/** One line of what is wrong, and nothing of what was typed elsewhere. */
const explain = (error: unknown): Effect.Effect<void> =>
  Effect.sync(() => {
    // The command line has said already what is wrong with it.
    if (error instanceof CliError.ShowHelp) {
      process.exitCode = error.errors.length > 0 ? 2 : 0
      return
    }
    const text = error instanceof Error ? error.message : String(error)
    process.stderr.write(`enrich-accounts: ${text}\n`)
    process.exitCode = 1
  })

// Not NodeRuntime.runMain: that interrupts everything at the first signal, and the fleet is to let go in order.
await Effect.runPromise(
  Command.runWith(command, { version: "0.1.0" })(join(process.argv.slice(2))).pipe(
    Effect.catch(explain),
    Effect.catchDefect((defect) => explain(defect)),
    Effect.provide(Layer.merge(NodeServices.layer, presenter))
  )
)
