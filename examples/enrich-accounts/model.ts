/** A thin client of a model over HTTP: OpenAI's chat completions or Anthropic's messages, with a typed result. */
import { Clock, Context, Effect, Redacted, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpIncomingMessage } from "effect/http"
import { ByteSize, type Exit } from "effect"
import * as Dependency from "espalier/Dependency"
import * as Fault from "espalier/Fault"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import type { Spend } from "espalier/Spend"

export class Model extends Dependency.Service<Model>()("model", {
  limit: Limit.adaptive({ initial: 16, maximum: 48 }),
  rates: [Rate.perMinute(3_000, { burst: 10 }), Rate.perMinute(2_000_000, { unit: "tokens", burst: 100_000 })],
  timeout: "30 seconds"
}) {}

/** Which provider, and what it charges, in micro-dollars a million tokens; unknown prices are absent, never 0. */
export class Provider extends Context.Service<
  Provider,
  {
    readonly kind: "openai" | "anthropic"
    /** Whether it is the server of this example, whose way of counting is known. */
    readonly isLocal: boolean
    readonly url: string
    readonly model: string
    readonly key: Redacted.Redacted<string>
    readonly prices: { readonly input: number; readonly output: number } | undefined
  }
>()("enrich-accounts/Provider") {}

const Usage = Schema.Struct({ input: Schema.Int, output: Schema.Int })
interface Reply<A> {
  readonly value: A
  readonly usage: typeof Usage.Type
}

const OpenAiBody = Schema.Struct({
  choices: Schema.NonEmptyArray(Schema.Struct({ message: Schema.Struct({ content: Schema.String }) })),
  usage: Schema.Struct({ prompt_tokens: Schema.Int, completion_tokens: Schema.Int })
})
const AnthropicBody = Schema.Struct({
  content: Schema.Array(Schema.Struct({ type: Schema.String, input: Schema.optionalKey(Schema.Unknown) })),
  usage: Schema.Struct({
    input_tokens: Schema.Int,
    output_tokens: Schema.Int,
    cache_read_input_tokens: Schema.optionalKey(Schema.Int),
    cache_creation_input_tokens: Schema.optionalKey(Schema.Int)
  })
})

/**
 * The most input tokens of a prompt. The server of this example counts a quarter of the prompt's bytes; of a real
 * tokenizer all one can say is that it makes at most one token of a byte, and the schema is counted too.
 */
const boundOf = (provider: Provider["Service"], prompt: string, schema: Schema.Top): number => {
  const bytes = (text: string): number => new TextEncoder().encode(text).length
  if (provider.isLocal) return Math.ceil(bytes(prompt) / 4)
  return bytes(prompt) + bytes(JSON.stringify(Schema.toJsonSchemaDocument(schema).schema)) + 200
}

const costOf = (prices: Provider["Service"]["prices"], input: number, output: number): Spend =>
  prices === undefined ? {} : { microDollars: Math.ceil((input * prices.input + output * prices.output) / 1_000_000) }

const requestFor = (provider: Provider["Service"], prompt: string, cap: number, schema: Schema.Top) => {
  const json = Schema.toJsonSchemaDocument(schema).schema
  const messages = [{ role: "user", content: prompt }]
  if (provider.kind === "openai") {
    return HttpClientRequest.post(`${provider.url}/v1/chat/completions`).pipe(
      HttpClientRequest.bearerToken(provider.key),
      HttpClientRequest.bodyJsonUnsafe({
        model: provider.model,
        messages,
        max_completion_tokens: cap,
        response_format: { type: "json_schema", json_schema: { name: "result", strict: true, schema: json } }
      })
    )
  }
  return HttpClientRequest.post(`${provider.url}/v1/messages`).pipe(
    HttpClientRequest.setHeaders({ "x-api-key": Redacted.value(provider.key), "anthropic-version": "2023-06-01" }),
    HttpClientRequest.bodyJsonUnsafe({
      model: provider.model,
      messages,
      max_tokens: cap,
      tools: [{ name: "result", description: "The result", input_schema: json }],
      tool_choice: { type: "tool", name: "result" }
    })
  )
}

/** What both shapes come to: the JSON text or value, and the usage. */
const read = (provider: Provider["Service"], body: unknown) =>
  provider.kind === "openai"
    ? Effect.map(Schema.decodeUnknownEffect(OpenAiBody)(body), ({ choices, usage }) => ({
        content: parse(choices[0].message.content),
        usage: { input: usage.prompt_tokens, output: usage.completion_tokens }
      }))
    : Effect.map(Schema.decodeUnknownEffect(AnthropicBody)(body), ({ content, usage }) => ({
        content: content.find((part) => part.type === "tool_use")?.input,
        usage: {
          input: usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0),
          output: usage.output_tokens
        }
      }))

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const exchange = <A>(provider: Provider["Service"], prompt: string, cap: number, schema: Schema.Codec<A>) =>
  Effect.gen(function* () {
    const client = yield* HttpClient.HttpClient
    const lost = () => Fault.disconnected("model")
    const response = yield* Effect.mapError(client.execute(requestFor(provider, prompt, cap, schema)), lost)
    const header = (name: string): string | undefined => response.headers[name]
    yield* Dependency.advise(header)
    const body = yield* response.json.pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.megabytes(1)),
      Effect.catch(() => Effect.undefined)
    )
    if (response.status !== 200) {
      const nowWallMillis = yield* Clock.currentTimeMillis
      const fault = provider.kind === "openai" ? Fault.openAi : Fault.anthropic
      return yield* Effect.fail(fault({ dependency: "model", status: response.status, header, body, nowWallMillis }))
    }
    const broken = () => new Fault.ToolFlaky({ dependency: "model", status: 200, code: "malformed" })
    const { content, usage } = yield* Effect.mapError(read(provider, body), broken)
    const value = yield* Effect.mapError(Schema.decodeUnknownEffect(schema)(content), broken)
    return { value, usage } satisfies Reply<A>
  })

/** Usage is the provider's count. What was refused (4xx) has cost nothing; what any other failure has cost is unknown. */
const usageOf =
  (prices: Provider["Service"]["prices"]) =>
  <A>(exit: Exit.Exit<Reply<A>, Fault.Fault>): Spend | undefined => {
    if (exit._tag === "Success") {
      const { input, output } = exit.value.usage
      return { tokens: input + output, ...costOf(prices, input, output) }
    }
    const error = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
    return error !== undefined && error.status >= 400 && error.status < 500 ? { tokens: 0, microDollars: 0 } : undefined
  }

/** Asks the model for a value of the schema, through the governed door. */
export const ask = <A>(operation: string, prompt: string, cap: number, schema: Schema.Codec<A>) =>
  Effect.gen(function* () {
    const provider = yield* Provider
    const input = boundOf(provider, prompt, schema)
    const reply = yield* Model.call(exchange(provider, prompt, cap, schema), {
      operation,
      tokens: input + cap,
      ...costOf(provider.prices, input, cap),
      usage: usageOf(provider.prices)
    })
    return reply.value
  })
