# Acts until the deadline of the last answer, and not as long as a flag is true. URL of the agent: the first argument.
import json, sys, time, urllib.request

MARGIN = 0.2  # the longest piece of work; less than --stop-grace
agent = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy of the environment


def ask(url):
    """Returns the token, and the time until which the app may act: counted from before the request."""
    sent = time.clock_gettime(time.CLOCK_BOOTTIME)
    with agent.open(url + "/v1/lock", timeout=1) as answer:
        lock = json.load(answer)
    return lock["token"], sent + lock["validForMilliseconds"] / 1000 if lock["role"] == "Active" else 0


token, until = 0, 0
while True:
    try:
        token, until = ask(sys.argv[1])
    except (OSError, ValueError):
        pass  # an agent that does not answer changes no deadline
    if time.clock_gettime(time.CLOCK_BOOTTIME) + MARGIN < until:
        print("act", token, flush=True)  # pass the token to each resource
    time.sleep(0.05)
