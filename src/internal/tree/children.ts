/**
 * The live children of a node, in the order of their start, and which tasks they are at.
 *
 * A linked list through the children themselves: linking and unlinking are O(1) and a child costs two pointers. Stopped
 * from the last started to the first, as OTP's supervisors do.
 *
 * @internal
 */
import type { Stop } from "./exit.ts"

export interface Child {
  next: Child | undefined
  previous: Child | undefined
  /** The hash of its task. */
  readonly taskHash: number
  stop(reason: Stop): void
}

export class Children {
  count = 0
  #last: Child | undefined
  readonly #tasks = new Map<number, number>()

  /** Adds a child; `true` when another live one is at the same task. */
  add(child: Child): boolean {
    child.previous = this.#last
    if (this.#last !== undefined) this.#last.next = child
    this.#last = child
    this.count++
    const same = this.#tasks.get(child.taskHash) ?? 0
    this.#tasks.set(child.taskHash, same + 1)
    return same > 0
  }

  remove(child: Child): void {
    if (child.previous !== undefined) child.previous.next = child.next
    if (child.next === undefined) this.#last = child.previous
    else child.next.previous = child.previous
    child.next = undefined
    child.previous = undefined
    this.count--
    const same = this.#tasks.get(child.taskHash) ?? 0
    if (same > 1) this.#tasks.set(child.taskHash, same - 1)
    else this.#tasks.delete(child.taskHash)
  }

  stop(reason: Stop): void {
    for (let child = this.#last; child !== undefined; child = child.previous) child.stop(reason)
  }
}
