package main

import (
	"context"

	"evenkeel/compat/told"

	"github.com/twmb/franz-go/pkg/kadm"
)

const setting = "retention.ms"

func admin(asked told.Asked) {
	ctx, topic := context.Background(), asked.Topic
	admin := kadm.NewClient(client(asked))
	defer admin.Close()
	retention := func() string {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		told.Must(err)
		for _, one := range described[0].Configs {
			if one.Key == setting {
				return one.MaybeValue()
			}
		}
		return ""
	}
	known := func() kadm.TopicDetail {
		listed, err := admin.ListTopics(ctx)
		told.Must(err)
		return listed[topic]
	}
	_, err := admin.CreateTopic(ctx, 2, -1, map[string]*string{setting: kadm.StringPtr("1000")}, topic)
	told.Must(err)
	told.Step("created")
	told.Until(func() bool { return retention() == "1000" })
	told.Step("retention.ms=1000")
	longer := kadm.AlterConfig{Op: kadm.SetConfig, Name: setting, Value: kadm.StringPtr("2000")}
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{longer}, topic)
	told.Must(err)
	told.Until(func() bool { return retention() == "2000" })
	told.Step("retention.ms=2000")
	made, err := admin.UpdatePartitions(ctx, 5, topic)
	told.Must(err)
	told.Must(made.Error())
	told.Until(func() bool { return len(known().Partitions) == 5 })
	told.Step("partitions=5")
	told.Until(func() bool { return known().Topic == topic })
	told.Step("listed")
	_, err = admin.DeleteTopic(ctx, topic)
	told.Must(err)
	told.Until(func() bool { return known().Topic == "" })
	told.Step("deleted")
}
