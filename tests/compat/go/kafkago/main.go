// segmentio/kafka-go, with its defaults wherever it is not asked for something else.
package main

import (
	"net"

	"evenkeel/compat/told"

	"github.com/segmentio/kafka-go"
)

func address(asked told.Asked) net.Addr {
	return kafka.TCP(asked.Bootstrap...)
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
