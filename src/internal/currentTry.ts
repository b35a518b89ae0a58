/**
 * Whether this runs inside of something that its owner tries again.
 *
 * @internal
 */
import * as Context from "effect/Context"

/**
 * Set inside what some owner tries again: `again` says whether this is not its first attempt. Inherited by all below,
 * so that nobody further in tries again as well, and only first attempts earn retries.
 */
export interface Try {
  readonly again: boolean
}

export const CurrentTry: Context.Reference<Try | undefined> = Context.Reference<Try | undefined>(
  "espalier/CurrentTry",
  {
    defaultValue: () => undefined
  }
)
