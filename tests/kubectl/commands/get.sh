# get in all its forms, describe, explain, watches and events
k apply -f configmap.yaml -f deployment.yaml -f vm.yaml -f vmi.yaml -f pod.yaml -f service.yaml >/dev/null
k create configmap another --from-literal=colour=red >/dev/null
k label configmap another app=another tier=second >/dev/null

check "get one" 'NAME +DATA +AGE.settings +2 +[0-9]' k get configmap settings
check "get several kinds" 'configmap/settings .*deployment.apps/web ' k get configmap/settings deployment/web
check "get by short names" 'NAME +READY +UP-TO-DATE +AVAILABLE +AGE.web +0/1 ' k get deploy
check "get -o wide shows more columns" 'CONTAINERS +IMAGES +SELECTOR.web .* web +registry.invalid/web:1 +app=web' k get deployment -o wide
check "get vm,vmi" 'NAME +AGE +STATUS +READY.virtualmachine.kubevirt.io/machine .*NAME +AGE +PHASE +IP +NODENAME +READY.virtualmachineinstance.kubevirt.io/instance ' \
  k get vm,vmi
check "get of custom resources by group" '^machine$' k get virtualmachines.kubevirt.io -o 'jsonpath={.items[*].metadata.name}'
check "get of custom resources by group and version" 'machine' k get virtualmachines.v1.kubevirt.io machine
check "get -o yaml" '^apiVersion: v1.data:.  colour: blue.  size: small.kind: ConfigMap.metadata:' k get configmap settings -o yaml
check "get -o json" '"kind": "VirtualMachine".*"runStrategy": "Halted"' k get vm machine -o json
lacks "get hides managed fields" managedFields k get configmap settings -o yaml
check "get --show-managed-fields" 'managedFields:.*manager: kubectl-client-side-apply' k get configmap settings -o yaml --show-managed-fields
check "get -o name" '^configmap/settings$' k get configmap settings -o name
check "get -o jsonpath" '^registry.invalid/web:1$' k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'
check "get -o go-template" '^colour size $' k get configmap settings -o 'go-template={{range $key, $value := .data}}{{$key}} {{end}}'
check "get -o custom-columns" 'NAME +COLOUR.settings +blue' k get configmap settings -o custom-columns=NAME:.metadata.name,COLOUR:.data.colour
check "get -l with equality" '^another$' k get configmaps -l app=another,tier!=first -o 'jsonpath={.items[*].metadata.name}'
check "get -l with sets" '^another settings$' k get configmaps -l 'app in (another,settings)' -o 'jsonpath={.items[*].metadata.name}'
check "get -l with existence" '^settings$' k get configmaps -l 'app,!tier' -o 'jsonpath={.items[*].metadata.name}'
check "get -L" 'NAME +DATA +AGE +TIER.another .* second' k get configmap another -L tier
check "get --show-labels" 'settings .* app=settings' k get configmap settings --show-labels
check "get --field-selector" '^another$' k get configmaps --field-selector metadata.name=another -o 'jsonpath={.items[*].metadata.name}'
check "get --field-selector of a pod" '^pod$' k get pods --field-selector status.phase=Pending,spec.nodeName= -o 'jsonpath={.items[*].metadata.name}'
check "get --field-selector of a custom resource" '^machine$' k get vm --field-selector metadata.name=machine -o 'jsonpath={.items[*].metadata.name}'
refuse "get --field-selector with an unknown field" 'field label not supported: spec.colour' k get pods --field-selector spec.colour=blue
refuse "get -l with nonsense" 'unable to parse requirement' k get pods -l 'app in blue'
check "get --sort-by" 'NAME +DATA +AGE.another .*settings ' k get configmaps -l app --sort-by=.metadata.name
check "get --sort-by the other way" 'another +1 .*settings +2 ' k get configmaps -l app --sort-by='{.data.size}'
check "get -A" "NAMESPACE +NAME +AGE +STATUS +READY.*$namespace +machine " k get vm -A
check "get --chunk-size reads all pages" 'another.*settings' k get configmaps --chunk-size=1 -o name
check "get --no-headers" '^settings +2 ' k get configmap settings --no-headers
check "get all" "pod/pod .*service/web .*deployment.apps/web " k get all
check "get nothing" 'No resources found' k get jobs
check "get --ignore-not-found" '^$' k get configmap absent --ignore-not-found
refuse "get of what is not there" '^Error from server \(NotFound\): virtualmachines.kubevirt.io "absent" not found$' k get vm absent
refuse "get of an unknown kind" 'the server doesn.t have a resource type "nonsense"' k get nonsense
check "get of namespaces" 'NAME +STATUS +AGE.*kube-system +Active' k get namespaces
check "get --subresource" 'NAME +DESIRED +AVAILABLE +AGE.web +1 +0' k get deployment web --subresource=scale
check "get --subresource=status" '"kind": "VirtualMachine"' k get vm machine --subresource=status -o json
check "get -f" 'settings' k get -f configmap.yaml

# watch_lines COMMAND…: starts a watch in the background, its lines go to $work/watch
watch_lines() { "$program" -n "$namespace" "$@" >"$work/watch" 2>&1 </dev/null & watcher=$!; }
end_watch() { kill $watcher 2>/dev/null; wait $watcher 2>/dev/null; watcher=; }
watch_lines get configmap settings -w --output-watch-events
soon "get -w begins with what is there" 'EVENT +NAME +DATA +AGE.ADDED +settings +2' cat "$work/watch"
k patch configmap settings --type=merge -p '{"data":{"third":"3"}}' >/dev/null
soon "get -w sees a change" 'MODIFIED +settings +3' cat "$work/watch"
k delete configmap settings >/dev/null
soon "get -w sees a deletion" 'DELETED +settings +3' cat "$work/watch"
end_watch
watch_lines get vm --watch-only -l app=machine
# A watch that begins now cannot be seen from outside, so changes are made until one arrives.
touch_machine() { k annotate vm machine --overwrite "touched=$RANDOM" >/dev/null; cat "$work/watch"; }
soon "get --watch-only of a custom resource" 'NAME +AGE +STATUS +READY.machine ' touch_machine
end_watch

check "describe a VM" 'Name: +machine.*API Version: +kubevirt.io/v1.*Run Strategy: +Halted.*Cores: +2' k describe vm machine
check "describe a VMI" 'Kind: +VirtualMachineInstance.*Guest: +512Mi' k describe vmi instance
check "describe a pod" 'Name: +pod.*Status: +Pending.*Image: +registry.invalid/main:1.*COLOUR: +blue.*QoS Class: +Burstable' k describe pod pod
check "describe a Deployment" 'Name: +web.*Replicas: +1 desired.*StrategyType: +RollingUpdate' k describe deployment web
check "describe a Service" 'Name: +web.*Type: +ClusterIP.*IP: +10\..*Port: +http +80/TCP' k describe service web
check "describe a ConfigMap" 'Name: +another.*colour:.*red' k describe configmap another
check "describe a namespace" "Name: +$namespace.*Status: +Active" k describe namespace "$namespace"
check "describe by label" 'Name: +another' k describe configmap -l tier=second
refuse "describe what is not there" '"absent" not found' k describe vm absent
k delete configmap another --wait=false >/dev/null

check "explain one of our fields" 'KIND: +VirtualMachine.VERSION: +v1.*FIELD: runStrategy <string>.*Always.*Halted.*DESCRIPTION:' \
  k explain virtualmachine.spec.runStrategy
check "explain --recursive" 'KIND: +VirtualMachineInstance.*cores.<integer>.*sockets.<integer>.*threads.<integer>' k explain vmi.spec.domain.cpu --recursive
check "explain a built-in kind" 'KIND: +Pod.*FIELD: spec <PodSpec>.*containers.<\[\]Container> -required-' k explain pod.spec
check "explain names the group" 'GROUP: +apps.KIND: +Deployment.VERSION: +v1' k explain deployment
check "explain another version of a field" 'FIELD: schedule <string>' k explain cronjob.spec.schedule --api-version=batch/v1
refuse "explain an unknown field" 'field "nonsense" does not exist' k explain pod.spec.nonsense

event() { # event NAME REASON KIND API-VERSION OBJECT
  stdin "{apiVersion: v1, kind: Event, metadata: {name: $1}, reason: $2, message: a message, type: Normal, count: 1,
    firstTimestamp: \"2026-01-01T00:00:00Z\", lastTimestamp: \"2026-01-01T00:00:00Z\", source: {component: checks},
    involvedObject: {kind: $3, apiVersion: $4, name: $5, namespace: $namespace, uid: $(k get "$3" "$5" -o 'jsonpath={.metadata.uid}')}}" create -f -
}
check "create an event" 'event/machine.1 created' event machine.1 Started VirtualMachine kubevirt.io/v1 machine
check "create another" 'event/pod.1 created' event pod.1 Scheduled Pod v1 pod
check "events" 'LAST SEEN +TYPE +REASON +OBJECT +MESSAGE.*Normal +Started +VirtualMachine/machine +a message' k events
lacks "events --for" Scheduled k events --for=virtualmachine.kubevirt.io/machine
check "events --types" 'No events found' k events --types=Warning
check "get events" 'LAST SEEN +TYPE +REASON +OBJECT +MESSAGE.*Scheduled +pod/pod +a message' k get events
check "get events --field-selector" '^machine.1$' \
  k get events --field-selector involvedObject.name=machine,reason=Started -o 'jsonpath={.items[*].metadata.name}'
check "describe shows events" 'Events:.*Normal +Started .*checks +a message' k describe vm machine
