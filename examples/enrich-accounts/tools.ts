/** The CRM: facts, news and contacts of an account, from a service that takes thirty requests a second and is flaky. */
import { Clock, Context, Effect, Schema } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import * as Dependency from "espalier/Dependency"
import * as Fault from "espalier/Fault"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import type { Account } from "./accounts.ts"

export class Crm extends Dependency.Service<Crm>()("crm", {
  limit: Limit.fixed(16),
  rates: [Rate.perSecond(30)],
  breaker: { rate: 0.5, window: "10 seconds", minimum: 20 },
  timeout: "3 seconds"
}) {}

export class CrmUrl extends Context.Service<CrmUrl, string>()("enrich-accounts/CrmUrl") {}

export const Facts = Schema.Struct({ employees: Schema.Int, revenueMillions: Schema.Int, publicSince: Schema.Int })
export const News = Schema.Struct({ headline: Schema.String })
export const Contact = Schema.Struct({ role: Schema.String, city: Schema.String })

/** What the tool server knows: made up from the symbol, the same on every run. */
export const routes = (accounts: ReadonlyArray<Account>): Record<string, (symbol: string) => unknown> => {
  const known = new Map(accounts.map((account) => [account.symbol, account]))
  const number = (symbol: string, factor: number): number =>
    [...symbol].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 9_973, 7) * factor
  const of = (f: (account: Account) => unknown) => (symbol: string) => {
    const account = known.get(symbol)
    return account === undefined ? undefined : f(account)
  }
  return {
    facts: of(({ symbol }) => ({
      employees: number(symbol, 13),
      revenueMillions: number(symbol, 5),
      publicSince: 1_950 + (number(symbol, 1) % 70)
    })),
    news: of(({ name, industry }) => ({ headline: `${name} reports on ${industry.toLowerCase()}` })),
    contacts: of(({ location }) => ({ role: "Head of Procurement", city: location }))
  }
}

const get = <A>(route: string, symbol: string, schema: Schema.Codec<A>) =>
  Effect.gen(function* () {
    const base = yield* CrmUrl
    const client = yield* HttpClient.HttpClient
    const lost = () => Fault.disconnected("crm")
    const response = yield* Effect.mapError(
      client.execute(HttpClientRequest.get(`${base}/${route}/${encodeURIComponent(symbol)}`)),
      lost
    )
    const body = yield* Effect.mapError(response.json, lost)
    if (response.status !== 200) {
      const nowWallMillis = yield* Clock.currentTimeMillis
      const header = (name: string): string | undefined => response.headers[name]
      return yield* Effect.fail(Fault.http({ dependency: "crm", status: response.status, header, body, nowWallMillis }))
    }
    return yield* Effect.mapError(Schema.decodeUnknownEffect(schema)(body), lost)
  })

/** Looks one thing up, through the governed door. */
export const lookUp = <A>(route: "facts" | "news" | "contacts", symbol: string, schema: Schema.Codec<A>) =>
  Crm.call(get(route, symbol, schema), { operation: route })
