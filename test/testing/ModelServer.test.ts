/** The model server over real HTTP: each rule, and its shapes beside a server that others wrote. */
import { LLMock } from "@copilotkit/aimock"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as ModelServer from "espalier/testing/ModelServer"
import { createServer } from "node:net"

const apis = {
  chat: {
    path: "/v1/chat/completions",
    body: { model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 60 }
  },
  responses: { path: "/v1/responses", body: { model: "m", input: "hello", max_output_tokens: 60 } },
  messages: {
    path: "/v1/messages",
    body: { model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 60 }
  }
} as const
type Name = keyof typeof apis

const post = (url: string, name: Name, more: object = {}, init: RequestInit = {}) =>
  Effect.promise(() =>
    fetch(url + apis[name].path, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: "Bearer k", "x-api-key": "k", ...init.headers },
      body: JSON.stringify({ ...apis[name].body, ...more }),
      ...(init.signal == null ? {} : { signal: init.signal })
    })
  )
const textOf = (response: Response) => Effect.promise(() => response.text())
const jsonOf = (response: Response) => Effect.promise((): Promise<any> => response.json())

/** The event types of a stream in order, repeated ones once: what a client's state machine sees. */
const eventsOf = (text: string): ReadonlyArray<string> => {
  const types: Array<string> = []
  for (const block of text.split("\n\n")) {
    const data = /^data: (.*)$/m.exec(block)?.[1]
    if (data === undefined) continue
    const json = data === "[DONE]" ? undefined : JSON.parse(data)
    const type: string = json === undefined ? "[DONE]" : (json.type ?? `${json.object}:${json.choices.length}`)
    if (types.at(-1) !== type) types.push(type)
  }
  return types
}

const run = <A, E>(
  options: ModelServer.Options,
  use: (server: ModelServer.ModelServer["Service"]) => Effect.Effect<A, E>
) => Effect.scoped(Effect.flatMap(ModelServer.make({ timeScale: 50, ...options }), use))

describe("limits", () => {
  it.live("requests beyond the rate get a 429 with a wait and the provider's own headers, in both dialects", () =>
    run({ requestsPerMinute: 60, burstSeconds: 2 }, (server) =>
      Effect.gen(function* () {
        const answers = yield* Effect.forEach([1, 2, 3], () => post(server.url, "chat"))
        assert.deepStrictEqual(
          answers.map((answer) => answer.status),
          [200, 200, 429]
        )
        const [first, , last] = answers
        assert.strictEqual(first!.headers.get("x-ratelimit-limit-requests"), "60")
        assert.strictEqual(last!.headers.get("retry-after"), "1")
        assert.isAbove(Number(last!.headers.get("retry-after-ms")), 0)
        assert.match(last!.headers.get("x-ratelimit-reset-requests")!, /^(\d+m)?[\d.]+m?s$/)
        const { error } = yield* jsonOf(last!)
        assert.strictEqual(error.code, "rate_limit_exceeded")
        const other = yield* post(server.url, "messages")
        assert.strictEqual(other.status, 429)
        assert.match(other.headers.get("anthropic-ratelimit-requests-reset")!, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
        assert.strictEqual((yield* jsonOf(other)).error.type, "rate_limit_error")
        const stats = yield* server.stats
        assert.deepStrictEqual([stats.requests, stats.ok, stats.throttledBy.requests], [4, 2, 2])
      })
    )
  )

  it.live("tokens are taken for prompt and cap up front and settled to the truth", () =>
    run({ tokensPerMinute: 600, burstSeconds: 10 }, (server) =>
      Effect.gen(function* () {
        const first = yield* post(server.url, "chat", { max_tokens: 95 })
        assert.strictEqual(first.status, 200)
        const { usage } = yield* jsonOf(first)
        const left = Number(first.headers.get("x-ratelimit-remaining-tokens"))
        assert.isBelow(left, 100 - 90)
        const next = yield* post(server.url, "chat", { max_tokens: 100 - usage.total_tokens + 20 })
        assert.strictEqual(next.status, 429)
        assert.strictEqual((yield* server.stats).throttledBy.tokens, 1)
        const small = yield* post(server.url, "chat", { max_tokens: Math.max(1, 100 - usage.total_tokens - 5) })
        assert.strictEqual(small.status, 200)
      })
    )
  )

  it.live("calls at once are bounded, and slots come back", () =>
    run({ hardConcurrency: 2, timeScale: 5 }, (server) =>
      Effect.gen(function* () {
        const answers = yield* Effect.all(
          [1, 2, 3, 4].map(() => post(server.url, "chat")),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(answers.map((answer) => answer.status).sort(), [200, 200, 429, 429])
        assert.strictEqual((yield* post(server.url, "chat")).status, 200)
        assert.strictEqual((yield* server.stats).peakInFlight, 2)
      })
    )
  )

  it.live("at four times the slots the next call is refused as overloaded: 529 or 503", () =>
    run({ maxConcurrency: 1, timeScale: 2 }, (server) =>
      Effect.gen(function* () {
        const answers = yield* Effect.all(
          [1, 2, 3, 4, 5, 6].map((n) => post(server.url, n < 6 ? "messages" : "chat")),
          { concurrency: "unbounded" }
        )
        const statuses = answers.map((answer) => answer.status)
        assert.strictEqual(statuses.filter((status) => status === 200).length, 4)
        for (const answer of answers) {
          if (answer.status === 529) assert.strictEqual((yield* jsonOf(answer)).error.type, "overloaded_error")
          else assert.include([200, 503], answer.status)
        }
      })
    )
  )

  it.live("a call takes longer the more others there are", () =>
    run({ maxConcurrency: 2, timeScale: 5 }, (server) =>
      Effect.gen(function* () {
        const started = performance.now()
        yield* post(server.url, "chat")
        const alone = performance.now() - started
        const crowdStarted = performance.now()
        yield* Effect.all(
          Array.from({ length: 6 }, () => post(server.url, "chat")),
          { concurrency: "unbounded" }
        )
        const crowded = performance.now() - crowdStarted
        assert.isAbove(crowded, alone * 2)
      })
    )
  )

  it.live("a used-up quota is insufficient_quota and never says when to come back", () =>
    run({ quota: 10 }, (server) =>
      Effect.gen(function* () {
        yield* post(server.url, "chat")
        const answer = yield* post(server.url, "chat")
        assert.strictEqual(answer.status, 429)
        assert.strictEqual(answer.headers.get("retry-after"), null)
        assert.strictEqual((yield* jsonOf(answer)).error.code, "insufficient_quota")
      })
    )
  )
})

describe("answers", () => {
  it.live("are a function of seed and request, not of the order of arrival", () =>
    Effect.gen(function* () {
      const ask = (seed: number, prompts: ReadonlyArray<string>) =>
        run({ seed }, (server) =>
          Effect.forEach(prompts, (content) =>
            Effect.map(
              Effect.flatMap(post(server.url, "chat", { messages: [{ role: "user", content }] }), jsonOf),
              (body) => [content, body.choices[0].message.content, body.usage.total_tokens]
            )
          )
        )
      const forward = yield* ask(1, ["a", "b"])
      const backward = yield* ask(1, ["b", "a"])
      assert.deepStrictEqual(forward, backward.toReversed())
      assert.notDeepEqual(forward, yield* ask(2, ["a", "b"]))
    })
  )

  it.live("fit the schema that was asked for: response_format, text.format, a forced tool", () =>
    run({}, (server) =>
      Effect.gen(function* () {
        const schema = {
          type: "object",
          properties: {
            score: { type: "integer", minimum: 3, maximum: 5 },
            step: { type: "string", enum: ["call", "wait"] }
          },
          required: ["score", "step"]
        }
        const fits = (value: any) => {
          assert.include([3, 4, 5], value.score)
          assert.include(["call", "wait"], value.step)
        }
        const chat = yield* Effect.flatMap(
          post(server.url, "chat", { response_format: { type: "json_schema", json_schema: { name: "r", schema } } }),
          jsonOf
        )
        fits(JSON.parse(chat.choices[0].message.content))
        const responses = yield* Effect.flatMap(
          post(server.url, "responses", { text: { format: { type: "json_schema", name: "r", schema } } }),
          jsonOf
        )
        fits(JSON.parse(responses.output[0].content[0].text))
        const messages = yield* Effect.flatMap(
          post(server.url, "messages", {
            tools: [{ name: "r", input_schema: schema }],
            tool_choice: { type: "tool", name: "r" }
          }),
          jsonOf
        )
        fits(messages.content[0].input)
        assert.strictEqual(messages.stop_reason, "tool_use")
      })
    )
  )

  it.live("are cut at the cap and say so, and usage is what the server counted", () =>
    run({}, (server) =>
      Effect.gen(function* () {
        const body = yield* Effect.flatMap(post(server.url, "chat", { max_tokens: 8 }), jsonOf)
        assert.strictEqual(body.choices[0].finish_reason, "length")
        assert.strictEqual(body.usage.completion_tokens, 8)
        const served = yield* server.counted(body.id)
        assert.strictEqual(served!.inputTokens + served!.outputTokens, body.usage.total_tokens)
        assert.strictEqual((yield* server.stats).totalTokens, body.usage.total_tokens)
        const message = yield* Effect.flatMap(post(server.url, "messages", { max_tokens: 8 }), jsonOf)
        assert.strictEqual(message.stop_reason, "max_tokens")
        const response = yield* Effect.flatMap(post(server.url, "responses", { max_output_tokens: 8 }), jsonOf)
        assert.strictEqual(response.incomplete_details.reason, "max_output_tokens")
      })
    )
  )

  it.live("stop when the client goes away in the middle of a stream: counted as far as sent, slot free", () =>
    run({ timeScale: 1, baseMillis: 1, outputTokensPerSecond: 150 }, (server) =>
      Effect.gen(function* () {
        const abort = new AbortController()
        const answer = yield* post(server.url, "messages", { stream: true, max_tokens: 500 }, { signal: abort.signal })
        const reader = answer.body!.getReader()
        yield* Effect.promise(() => reader.read())
        yield* Effect.sleep("400 millis")
        abort.abort()
        yield* Effect.sleep("200 millis")
        const stats = yield* server.stats
        assert.strictEqual(stats.inFlight, 0)
        assert.strictEqual(stats.aborted, 1)
        const [served] = yield* server.log
        assert.isTrue(served!.aborted)
        assert.isAbove(served!.outputTokens, 0)
        const whole = yield* Effect.flatMap(post(server.url, "messages", { max_tokens: 500 }), jsonOf)
        assert.isBelow(served!.outputTokens, whole.usage.output_tokens)
      })
    )
  )
})

describe("faults", () => {
  const share = (
    faults: Partial<ModelServer.Faults>,
    check: (server: ModelServer.ModelServer["Service"]) => Effect.Effect<void>
  ) => run({ faults }, check)

  it.live("errors are 500 in the provider's shape and cost no tokens", () =>
    share({ error: 1 }, (server) =>
      Effect.gen(function* () {
        const answer = yield* post(server.url, "messages")
        assert.strictEqual(answer.status, 500)
        assert.strictEqual((yield* jsonOf(answer)).error.type, "api_error")
        const stats = yield* server.stats
        assert.deepStrictEqual([stats.failed, stats.totalTokens, stats.inFlight], [1, 0, 0])
      })
    )
  )

  it.live("malformed bodies are 200 and do not parse", () =>
    share({ malformed: 1 }, (server) =>
      Effect.gen(function* () {
        const answer = yield* post(server.url, "chat")
        assert.strictEqual(answer.status, 200)
        const text = yield* textOf(answer)
        assert.throws(() => JSON.parse(text))
      })
    )
  )

  it.live("cut streams break off, and an error inside a stream is an event after a 200", () =>
    Effect.gen(function* () {
      yield* share({ cut: 1 }, (server) =>
        Effect.gen(function* () {
          const answer = yield* post(server.url, "chat", { stream: true })
          const text = yield* Effect.promise(() => answer.text().catch(() => "broken off"))
          assert.notInclude(text, "[DONE]")
          yield* Effect.sleep("20 millis")
          assert.strictEqual((yield* server.stats).inFlight, 0)
        })
      )
      yield* share({ errorInStream: 1 }, (server) =>
        Effect.gen(function* () {
          const answer = yield* post(server.url, "messages", { stream: true })
          assert.strictEqual(answer.status, 200)
          assert.include(eventsOf(yield* textOf(answer)), "error")
        })
      )
    })
  )

  it.live("a hang answers nothing until the client gives up, and then frees its slot", () =>
    share({ hang: 1 }, (server) =>
      Effect.gen(function* () {
        const answer = yield* Effect.promise(() =>
          fetch(`${server.url}/v1/messages`, {
            method: "POST",
            body: JSON.stringify(apis.messages.body),
            signal: AbortSignal.timeout(150)
          }).catch(() => "gave up")
        )
        assert.strictEqual(answer, "gave up")
        yield* Effect.sleep("50 millis")
        assert.strictEqual((yield* server.stats).inFlight, 0)
      })
    )
  )

  it.live("a brownout fails for its time and is over by itself", () =>
    run({}, (server) =>
      Effect.gen(function* () {
        yield* server.brownout({ slots: 0.2, errors: 1, duration: "200 millis" })
        assert.strictEqual((yield* post(server.url, "chat")).status, 500)
        yield* Effect.sleep("250 millis")
        assert.strictEqual((yield* post(server.url, "chat")).status, 200)
      })
    )
  )
})

describe("mending", () => {
  it.live("overlapping brownouts each end at their own time", () =>
    run({}, (server) =>
      Effect.gen(function* () {
        yield* server.brownout({ slots: 1, errors: 1, duration: "500 millis" })
        yield* server.brownout({ slots: 1, errors: 0.999, duration: "100 millis" })
        yield* Effect.sleep("200 millis")
        assert.strictEqual((yield* post(server.url, "chat")).status, 500)
        yield* Effect.sleep("400 millis")
        assert.strictEqual((yield* post(server.url, "chat")).status, 200)
      })
    )
  )

  it.live("the cap holds in any script, and schemas with bounds, lengths and references are honoured", () =>
    run({ reply: ({ prompt }) => (prompt.includes("kanji") ? { text: "日本語".repeat(400) } : undefined) }, (server) =>
      Effect.gen(function* () {
        const kanji = { messages: [{ role: "user", content: "kanji" }], max_tokens: 50 }
        const capped = yield* Effect.flatMap(post(server.url, "chat", kanji), jsonOf)
        assert.isAtMost(capped.usage.completion_tokens, 50)
        const schema = {
          $ref: "#/$defs/Top",
          $defs: {
            Top: {
              type: "object",
              properties: {
                low: { type: "number", maximum: -5 },
                high: { type: "number", exclusiveMinimum: 500 },
                name: { type: "string", allOf: [{ maxLength: 5 }] }
              }
            }
          }
        }
        const format = { response_format: { type: "json_schema", json_schema: { name: "r", schema } }, max_tokens: 400 }
        const body = yield* Effect.flatMap(post(server.url, "chat", format), jsonOf)
        const { low, high, name } = JSON.parse(body.choices[0].message.content)
        assert.isTrue(low <= -5 && high > 500 && name.length <= 5)
      })
    )
  )
})

describe("what is counted", () => {
  it.live("each fault comes by its own share", () =>
    run({ faults: { cut: 0.3, errorInStream: 0.3 }, timeScale: 1_000 }, (server) =>
      Effect.gen(function* () {
        const seen = { cut: 0, errorInStream: 0, whole: 0 }
        const asks = Array.from({ length: 120 }, (_, index) => ({
          stream: true,
          messages: [{ role: "user", content: `question ${index}` }]
        }))
        yield* Effect.forEach(
          asks,
          (ask) =>
            Effect.gen(function* () {
              const answer = yield* post(server.url, "messages", ask)
              const text = yield* Effect.promise(() => answer.text().catch(() => "broken off"))
              const kind = text.includes("event: error")
                ? "errorInStream"
                : text.includes("message_stop")
                  ? "whole"
                  : "cut"
              seen[kind]++
            }),
          { concurrency: 4, discard: true }
        )
        for (const kind of ["cut", "errorInStream"] as const) {
          assert.isTrue(seen[kind] > 20 && seen[kind] < 55, `${kind}: ${seen[kind]} of 120`)
        }
        yield* Effect.sleep("50 millis")
        assert.deepInclude(yield* server.stats, {
          ok: seen.whole,
          failed: seen.cut + seen.errorInStream,
          aborted: 0,
          inFlight: 0
        })
      })
    )
  )

  it.live("a brownout lowers what is too many at once", () =>
    run({ maxConcurrency: 4, timeScale: 1 }, (server) =>
      Effect.gen(function* () {
        yield* server.brownout({ slots: 0.25, errors: 0, duration: "1 minute" })
        const abort = new AbortController()
        for (let call = 0; call < 4; call++) {
          yield* Effect.forkChild(Effect.ignoreCause(post(server.url, "messages", {}, { signal: abort.signal })))
        }
        yield* Effect.sleep("100 millis")
        assert.strictEqual((yield* post(server.url, "messages")).status, 529)
        abort.abort()
      })
    )
  )

  it.live("a call that began before a reset gives the new meters nothing", () =>
    run(
      { tokensPerMinute: 1_200, burstSeconds: 10, timeScale: 1, baseMillis: 200, outputTokensPerSecond: 10_000 },
      (server) =>
        Effect.gen(function* () {
          const before = yield* Effect.forkChild(post(server.url, "chat", { max_tokens: 190 }))
          yield* Effect.sleep("50 millis")
          yield* server.reset
          assert.strictEqual((yield* post(server.url, "chat", { max_tokens: 100 })).status, 200)
          yield* Fiber.join(before)
          assert.strictEqual((yield* post(server.url, "chat", { max_tokens: 190 })).status, 429)
        })
    )
  )

  it.live("closing does not wait for connections that clients keep", () =>
    Effect.gen(function* () {
      const started = performance.now()
      yield* run({}, (server) => Effect.flatMap(post(server.url, "chat"), textOf))
      assert.isBelow(performance.now() - started, 2_000)
    })
  )
})

describe("bad input", () => {
  it.live("bodies, paths and keys that are wrong are refused in the provider's shape", () =>
    run({ keys: ["right"] }, (server) =>
      Effect.gen(function* () {
        const raw = (path: string, body: string, key = "right") =>
          Effect.promise(() => fetch(server.url + path, { method: "POST", body, headers: { "x-api-key": key } }))
        assert.strictEqual((yield* raw("/v1/messages", "{")).status, 400)
        assert.strictEqual((yield* raw("/v1/messages", "{}")).status, 400)
        assert.strictEqual((yield* raw("/v1/messages", JSON.stringify({ model: "m", messages: [] }))).status, 400)
        assert.strictEqual((yield* raw("/v1/messages", "{}", "wrong")).status, 401)
        assert.strictEqual((yield* raw("/v1/nothing", "{}")).status, 404)
        assert.strictEqual((yield* raw("/v1/chat/completions", `"${"x".repeat(4_100_000)}"`)).status, 413)
      })
    )
  )

  it.live("a port in use is an error that names it and says what to do", () =>
    Effect.gen(function* () {
      const taken = createServer()
      const port = yield* Effect.callback<number>((resume) => {
        taken.listen(0, "127.0.0.1", () => resume(Effect.succeed((taken.address() as { port: number }).port)))
      })
      const error = yield* Effect.flip(Effect.scoped(ModelServer.make({ port })))
      assert.strictEqual(error.message, `port ${port} on 127.0.0.1 is in use; choose another port, or 0 for a free one`)
      taken.close()
    })
  )

  it("options out of range throw a RangeError that names option and value", () => {
    const message = (options: ModelServer.Options): string => {
      try {
        Effect.runSync(Effect.scoped(ModelServer.make(options)))
        return "accepted"
      } catch (error) {
        return String(error)
      }
    }
    assert.include(message({ maxConcurrency: 0 }), "ModelServer.make: maxConcurrency must be an integer >= 1, got 0")
    assert.include(message({ requestsPerMinute: Number.NaN }), "requestsPerMinute must be a finite number > 0, got NaN")
    assert.include(message({ faults: { error: 2 } }), "faults.error must be a share from 0 to 1, got 2")
    assert.include(message({ port: 70_000 }), "port must be an integer from 0 to 65535, got 70000")
  })
})

describe("beside a server that others wrote", () => {
  /** Paths of the keys of a value; array items count as one. */
  const keysOf = (value: unknown, at = ""): ReadonlyArray<string> =>
    Array.isArray(value)
      ? value.slice(0, 1).flatMap((item) => keysOf(item, `${at}[]`))
      : typeof value === "object" && value !== null
        ? Object.entries(value).flatMap(([key, inner]) => [`${at}.${key}`, ...keysOf(inner, `${at}.${key}`)])
        : []

  it.live("bodies hold every key and streams have every event, in order, that its clients are used to", () =>
    run({}, (server) =>
      Effect.gen(function* () {
        const mock = new LLMock({ port: 0 })
        mock.onMessage("hello", { content: "Hi there, how are you?" })
        yield* Effect.promise(() => mock.start())
        yield* Effect.addFinalizer(() => Effect.promise(() => mock.stop()))
        for (const name of ["chat", "responses", "messages"] as const) {
          const ours = keysOf(yield* Effect.flatMap(post(server.url, name, { max_tokens: 400 }), jsonOf))
          const theirs = keysOf(yield* Effect.flatMap(post(mock.url, name), jsonOf))
          const optional = /system_fingerprint|annotations|logprobs|service_tier|metadata|container|context_management/
          const missing = theirs.filter((key) => !ours.includes(key) && !optional.test(key))
          assert.deepStrictEqual(missing, [], `${name}: keys that the other server has`)
          const stream = name === "chat" ? { stream: true, stream_options: { include_usage: true } } : { stream: true }
          const ourEvents = eventsOf(yield* Effect.flatMap(post(server.url, name, stream), textOf))
          const theirEvents = eventsOf(yield* Effect.flatMap(post(mock.url, name, stream), textOf))
          const finish = (events: ReadonlyArray<string>) =>
            events
              .filter((type) => type !== "ping" && type !== "response.in_progress")
              .map((type) => type.replace("incomplete", "completed"))
          assert.deepStrictEqual(finish(ourEvents), finish(theirEvents), `${name}: events`)
        }
      }).pipe(Effect.scoped)
    )
  )
})
