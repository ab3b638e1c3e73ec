// Acts until the deadline of the last answer, and not as long as a flag is true. URL of the agent: the first argument.
const MARGIN = 200; // milliseconds: the longest piece of work; less than --stop-grace

/** Returns the token, and the time until which the app may act: counted from before the request. */
async function ask(url) {
  const sent = performance.now(); // stops while the machine sleeps: not for a laptop or a suspended virtual machine
  const answer = await fetch(`${url}/v1/lock`, { signal: AbortSignal.timeout(1000) });
  const lock = await answer.json();
  return [lock.token, lock.role === "Active" ? sent + lock.validForMilliseconds : 0];
}

let [token, until] = [0, 0];
for (;;) {
  try {
    [token, until] = await ask(process.argv[2]);
  } catch {
    // An agent that does not answer changes no deadline.
  }
  if (performance.now() + MARGIN < until) console.log("act", token); // pass the token to each resource
  await new Promise((resolve) => setTimeout(resolve, 50));
}
