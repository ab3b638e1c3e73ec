// Acts until the deadline of the last answer, and not as long as a flag is true. URL of the agent: the first argument.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

const margin = 200 * time.Millisecond // the longest piece of work; less than --stop-grace

var agent = http.Client{Timeout: time.Second, Transport: &http.Transport{}} // no proxy of the environment

// ask returns the token, and the time until which the app may act: counted from before the request.
func ask(url string) (token uint64, until time.Time, err error) {
	sent := time.Now() // stops while the machine sleeps: not for a laptop or a suspended virtual machine
	answer, err := agent.Get(url + "/v1/lock")
	if err != nil {
		return 0, until, err
	}
	defer answer.Body.Close()
	var lock struct {
		Role                 string
		Token                uint64
		ValidForMilliseconds int64
	}
	err = json.NewDecoder(answer.Body).Decode(&lock)
	if lock.Role == "Active" {
		until = sent.Add(time.Duration(lock.ValidForMilliseconds) * time.Millisecond)
	}
	return lock.Token, until, err
}

func main() {
	var token uint64
	var until time.Time
	for ; ; time.Sleep(50 * time.Millisecond) {
		// An agent that does not answer changes no deadline.
		if newToken, newUntil, err := ask(os.Args[1]); err == nil {
			token, until = newToken, newUntil
		}
		if time.Now().Add(margin).Before(until) {
			fmt.Println("act", token) // pass the token to each resource
		}
	}
}
