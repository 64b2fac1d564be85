// What a test leaves to chance, and how to repeat it.

/** The same sequence for the same REVEILLE_SEED; says which one it took. */
export function seeded(what: string): () => number {
  const seed = Number(process.env.REVEILLE_SEED ?? Math.floor(Math.random() * 2 ** 31))
  console.log(`${what}: REVEILLE_SEED=${seed}`)
  let state = seed
  return () => {
    // mulberry32
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

export function between(random: () => number, low: number, high: number): number {
  return low + Math.floor(random() * (Math.floor(high) - low))
}
