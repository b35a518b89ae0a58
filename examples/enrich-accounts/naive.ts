/**
 * The same job the way it is written first: `Promise.all` over everything, and retries wherever somebody thought of them,
 * in the client (like an SDK), around each tool, and around each account. No budget, no line, no deadline.
 */
import type { Account } from "./accounts.ts"

export interface Counted {
  calls: number
  throttled: number
  retries: number
  inFlight: number
  maxInFlight: number
}

const attempts = 3
const sleep = (millis: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, millis))

const retrying = async <A>(counted: Counted, baseMillis: number, run: () => Promise<A>): Promise<A> => {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run()
    } catch (error) {
      if (attempt === attempts) throw error
      counted.retries++
      await sleep(baseMillis * 2 ** (attempt - 1))
    }
  }
}

/** What an SDK does: three attempts, half a second apart and growing. */
const request = (counted: Counted, url: string, init?: RequestInit): Promise<any> =>
  retrying(counted, 500, async () => {
    counted.calls++
    counted.maxInFlight = Math.max(counted.maxInFlight, ++counted.inFlight)
    try {
      const response = await fetch(url, init ?? {})
      if (response.status === 429 || response.status === 529) counted.throttled++
      if (!response.ok) throw new Error(`HTTP ${response.status}`)
      return await response.json()
    } finally {
      counted.inFlight--
    }
  })

const tool = (counted: Counted, url: string): Promise<unknown> => retrying(counted, 200, () => request(counted, url))

const model = (counted: Counted, url: string, prompt: string, cap: number): Promise<string> =>
  retrying(counted, 200, async () => {
    const body = JSON.stringify({
      model: "local",
      messages: [{ role: "user", content: prompt }],
      max_completion_tokens: cap
    })
    const reply = await request(counted, `${url}/v1/chat/completions`, { method: "POST", body })
    return String(reply.choices[0].message.content)
  })

const enrich = (counted: Counted, modelUrl: string, toolUrl: string, account: Account): Promise<string> =>
  retrying(counted, 100, async () => {
    const [facts, news, contact] = await Promise.all(
      ["facts", "news", "contacts"].map((route) =>
        tool(counted, `${toolUrl}/${route}/${encodeURIComponent(account.symbol)}`)
      )
    )
    const known = JSON.stringify({ account, facts, news, contact })
    const draft = await model(counted, modelUrl, `Write a brief account profile.\nWhat is known: ${known}`, 250)
    return model(counted, modelUrl, `Score this profile from 0 to 100 and say what to do next.\n${draft}`, 120)
  })

/** Every account at once; what failed, with its last error. */
export const run = async (modelUrl: string, toolUrl: string, accounts: ReadonlyArray<Account>) => {
  const counted: Counted = { calls: 0, throttled: 0, retries: 0, inFlight: 0, maxInFlight: 0 }
  const results = await Promise.allSettled(accounts.map((account) => enrich(counted, modelUrl, toolUrl, account)))
  const unfinished = results.flatMap((result, index) =>
    result.status === "rejected"
      ? [
          {
            input: accounts[index]!.symbol,
            reason: `Failed: ${result.reason instanceof Error ? result.reason.message : "unknown"}`
          }
        ]
      : []
  )
  return { counted, unfinished }
}
