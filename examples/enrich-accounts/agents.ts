/** The agents: one that plans and delegates, one for each account. */
import { Effect, Schema } from "effect"
import * as Agent from "espalier/Agent"
import * as Retry from "espalier/Retry"
import { Account } from "./accounts.ts"
import { ask } from "./model.ts"
import { Contact, Facts, lookUp, News } from "./tools.ts"

const Score = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 }))

const Draft = Schema.Struct({ summary: Schema.NonEmptyString, opportunity: Schema.NonEmptyString })
const Review = Schema.Struct({ score: Score, nextStep: Schema.Literals(["call", "write", "wait"]) })
export const Profile = Schema.Struct({ symbol: Schema.String, ...Draft.fields, ...Review.fields })
export type Profile = typeof Profile.Type

const Plan = Schema.Struct({ focus: Schema.NonEmptyString, tone: Schema.Literals(["brief", "detailed"]) })
const Closing = Schema.Struct({ summary: Schema.NonEmptyString })

const Work = Schema.Struct({ account: Account, plan: Plan })

/** Of an account that was cut short, what was looked up is right as far as it goes. */
const Known = Schema.Struct({ symbol: Schema.String, facts: Facts, news: News, contact: Contact })

/** One account: three look-ups, a draft, a review. Each is a step, so that a second run does not pay for it again. */
export const Enrich = Agent.make("Enrich", {
  input: Work,
  output: Profile,
  partial: Known,
  estimate: { tokens: 250, microDollars: 120, time: "2 seconds" },
  grant: { tokens: 900, microDollars: 500 },
  label: ({ account }) => account.symbol,
  verify: (profile, { account }) => Effect.succeed(profile.symbol === account.symbol && profile.summary.length > 10),
  run: Effect.fnUntraced(function* ({ account, plan }, self) {
    const { symbol } = account
    const facts = yield* Agent.step("facts", lookUp("facts", symbol, Facts))
    const news = yield* Agent.step("news", lookUp("news", symbol, News))
    const contact = yield* Agent.step("contacts", lookUp("contacts", symbol, Contact))
    yield* self.partial({ symbol, facts, news, contact })
    const known = JSON.stringify({ account, facts, news, contact })
    const draft = yield* Agent.step(
      "draft",
      ask("draft", `Write a ${plan.tone} account profile. Focus: ${plan.focus}\nWhat is known: ${known}`, 250, Draft)
    )
    const review = yield* Agent.step(
      "review",
      ask("review", `Score this profile from 0 to 100 and say what to do next.\n${JSON.stringify(draft)}`, 120, Review)
    )
    return { symbol, ...draft, ...review }
  })
})

export const CampaignResult = Schema.Struct({
  focus: Schema.String,
  profiles: Schema.Array(Profile),
  closing: Schema.String
})

/** Plans, hands every account to a sub-agent, and sums up with tokens and time that none of them could take. */
export const Campaign = Agent.make("Campaign", {
  input: Schema.Array(Account),
  output: CampaignResult,
  // Time is left to the default, a tenth: a fixed one would eat up a short deadline.
  reserve: { tokens: 1_000, microDollars: 1_000 },
  identity: (accounts) => accounts.length,
  run: Effect.fnUntraced(function* (accounts: ReadonlyArray<Account>) {
    const sectors = [...new Set(accounts.map((account) => account.sector))].join(", ")
    // The root owns the retries of its own work; one failed answer must not cost the campaign.
    const plan = yield* Retry.owned(
      ask("plan", `Plan a campaign for ${accounts.length} companies in: ${sectors}`, 200, Plan)
    )
    const work = accounts.map((account) => ({ account, plan }))
    const { completed } = yield* Agent.forEach(Enrich, work, {
      concurrency: 48,
      supervisor: { intensity: 200, period: "60 seconds" }
    })
    const profiles = completed.map(({ output }) => output)
    const best = profiles.toSorted((a, b) => b.score - a.score).slice(0, 5)
    const closing = yield* Agent.wrapUp(
      ask(
        "closing",
        `Sum up: ${profiles.length} of ${accounts.length} done. Best: ${JSON.stringify(best.map((each) => each.symbol))}`,
        200,
        Closing
      )
    ).pipe(
      Effect.map(({ summary }) => summary),
      Effect.orElseSucceed(() => "no summary: the model did not answer")
    )
    return { focus: plan.focus, profiles, closing }
  })
})
