// github.com/samuel/go-zookeeper, as the documentation of its package zk uses it, and its Lock.
// The lines are those of lines.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

var (
	mutex sync.Mutex
	acl   = zk.WorldACL(zk.PermAll)
)

type session struct {
	name  string
	conn  *zk.Conn
	locks map[string]*zk.Lock
}

func say(words ...interface{}) {
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Println(words...)
}

func number(text string) int32 {
	n, _ := strconv.Atoi(text)
	return int32(n)
}

func (s *session) connect(hosts string, milliseconds int32) error {
	conn, events, err := zk.Connect(strings.Split(hosts, ","), time.Duration(milliseconds)*time.Millisecond,
		zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	s.conn = conn
	go func() {
		for event := range events {
			if event.Type == zk.EventSession {
				say("*", s.name, "state", event.State)
			}
		}
	}()
	for conn.State() != zk.StateHasSession { // its channel of events drops those that find it full
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *session) flood(path string, count, size int, closing bool) string {
	type end struct {
		index int
		words string
	}
	came := make(chan end, count)
	data := []byte(strings.Repeat("x", size))
	for i := 0; i < count; i++ {
		go func(index int) {
			_, err := s.conn.Set(path, data, -1)
			if err == nil {
				came <- end{index, "ok"}
			} else {
				came <- end{index, err.Error()}
			}
		}(i)
	}
	if closing {
		time.Sleep(20 * time.Millisecond) // until the goroutines have begun
		s.conn.Close()
	}
	ends := make([]string, count)
	limit := time.After(20 * time.Second)
	for i, open := 0, true; i < count && open; i++ {
		select {
		case one := <-came:
			ends[one.index] = one.words
		case <-limit:
			open = false
		}
	}
	var groups []string // how many in a row have the same end
	for i := 0; i < count; {
		first := i
		for i < count && ends[i] == ends[first] {
			i++
		}
		words := ends[first]
		if words == "" {
			words = "no answer"
		}
		groups = append(groups, fmt.Sprintf("%d*%s", i-first, words))
	}
	return strings.Join(groups, ", ")
}

func (s *session) watch(kind, path string) (err error) {
	var events <-chan zk.Event
	if kind == "data" {
		_, _, events, err = s.conn.GetW(path)
	} else {
		_, _, events, err = s.conn.ChildrenW(path)
	}
	if err == nil {
		go func() {
			event := <-events
			say("*", s.name, "event", event.Type, event.Path)
		}()
	}
	return err
}

func (s *session) stat(path string) (string, error) {
	there, stat, err := s.conn.Exists(path)
	if err != nil || !there {
		return "none", err
	}
	owned := ""
	if stat.EphemeralOwner != 0 {
		owned = ", owned"
	}
	return fmt.Sprintf("%d %d %d, %d bytes, %d children%s", stat.Version, stat.Cversion, stat.Aversion,
		stat.DataLength, stat.NumChildren, owned), nil
}

// It has no time limit of its own, and no way to give up.
func (s *session) lock(path string) (string, error) {
	lock := zk.NewLock(s.conn, path, acl)
	mutex.Lock()
	s.locks[path] = lock
	mutex.Unlock()
	return "held", lock.Lock()
}

// Write elsewhere as long as the program believes in its lock: no method says whether it is held.
func (s *session) work(path string) {
	for {
		say("*", s.name, "event", "wrote", path)
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *session) call(command string, w []string) (result string, err error) {
	switch command {
	case "connect":
		err = s.connect(w[0], number(w[1]))
	case "create":
		result, err = s.conn.Create(w[0], []byte(w[1]), 0, acl)
	case "sequential":
		result, err = s.conn.Create(w[0], []byte(w[1]), zk.FlagSequence, acl)
	case "protected":
		result, err = s.conn.CreateProtectedEphemeralSequential(w[0], []byte(w[1]), acl)
	case "ephemeral":
		result, err = s.conn.Create(w[0], []byte(w[1]), zk.FlagEphemeral, acl)
	case "set":
		_, err = s.conn.Set(w[0], []byte(w[1]), number(w[2]))
	case "delete":
		err = s.conn.Delete(w[0], number(w[1]))
	case "multi":
		_, err = s.conn.Multi(&zk.CreateRequest{Path: w[0], Acl: acl},
			&zk.SetDataRequest{Path: w[1], Data: []byte("x"), Version: number(w[2])})
	case "get":
		var data []byte
		data, _, err = s.conn.Get(w[0])
		result = string(data)
	case "children":
		var names []string
		names, _, err = s.conn.Children(w[0])
		sort.Strings(names)
		result = strings.Join(names, ",")
	case "stat":
		result, err = s.stat(w[0])
	case "auth":
		err = s.conn.AddAuth(w[0], []byte(w[1]))
	case "mine":
		result, err = s.conn.Create(w[0], []byte(w[1]), 0, zk.AuthACL(zk.PermAll))
	case "flood":
		result = s.flood(w[0], int(number(w[1])), int(number(w[2])), len(w) > 3)
	case "watch":
		if w[0] != "data" && w[0] != "children" {
			return "", errLacks
		}
		err = s.watch(w[0], w[1])
	case "lock":
		result, err = s.lock(w[0])
	case "work":
		s.work(w[0])
	case "unlock":
		err = s.locks[w[0]].Unlock()
	case "close":
		s.conn.Close()
	default:
		err = errLacks
	}
	return result, err
}

var errLacks = fmt.Errorf("lacks")

func main() {
	sessions := map[string]*session{}
	say("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		if words[2] == "exit" {
			return
		}
		if sessions[words[1]] == nil {
			sessions[words[1]] = &session{name: words[1], locks: map[string]*zk.Lock{}}
		}
		s := sessions[words[1]]
		go func() {
			result, err := s.call(words[2], words[3:])
			switch err {
			case nil:
				say(words[0], "ok", result)
			case errLacks:
				say(words[0], "lacks")
			default:
				say(words[0], "error", err.Error())
			}
		}()
	}
}
