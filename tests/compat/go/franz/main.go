// franz-go, with its defaults wherever it is not asked for something else.
package main

import (
	"evenkeel/compat/told"

	"github.com/twmb/franz-go/pkg/kgo"
)

func client(asked told.Asked, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(asked.Bootstrap...))...)
	told.Must(err)
	return made
}

func read(fetches kgo.Fetches) {
	fetches.EachError(func(_ string, _ int32, err error) { told.Error(err) })
	fetches.EachRecord(func(one *kgo.Record) {
		told.Read(one.Value, int(one.Partition), one.Offset)
	})
}

func main() {
	told.Main(map[string]func(told.Asked){
		"produce":  produce,
		"consume":  consume,
		"group":    group,
		"times":    times,
		"admin":    admin,
		"transact": transact,
	})
}
