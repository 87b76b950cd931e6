// sarama, with its defaults wherever it is not asked for something else.
package main

import (
	"evenkeel/compat/told"

	"github.com/IBM/sarama"
)

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Return.Errors = true
	made.Producer.Return.Successes = true
	return made
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
