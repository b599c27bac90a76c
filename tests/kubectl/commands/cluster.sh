# discovery, versions, raw requests and nodes
check "version" 'Client Version: v1\.[0-9]+.*Server Version: v1\.[0-9]+' kubectl version
check "cluster-info" 'control plane.* is running at .*https://' kubectl cluster-info
check "api-versions" 'apps/v1.*kubevirt.io/v1.*v1$' kubectl api-versions
check "api-resources" 'NAME +SHORTNAMES +APIVERSION +NAMESPACED +KIND.*configmaps +cm +v1 +true +ConfigMap.*deployments +deploy +apps/v1 +true +Deployment' \
  kubectl api-resources
check "api-resources of our group" 'virtualmachineinstances +vmi,vmis +kubevirt.io/v1 +true +VirtualMachineInstance.*virtualmachines +vm,vms +kubevirt.io/v1 +true +VirtualMachine' \
  kubectl api-resources --api-group=kubevirt.io
lacks "api-resources --namespaced=false" 'configmaps' kubectl api-resources --namespaced=false
check "api-resources -o wide" 'virtualmachines .* (create,)?delete,deletecollection,get,list,patch,(create,)?update,watch' kubectl api-resources --api-group=kubevirt.io -o wide
check "api-resources --categories" 'pods' kubectl api-resources --categories=all -o name
check "api-resources --verbs" '(^|.)nodes(.|$)' kubectl api-resources --verbs=list,watch -o name
check "get --raw /version" '"gitVersion": ?"v1\.' kubectl get --raw /version
check "get --raw /healthz" '^ok$' kubectl get --raw /healthz
check "get --raw /readyz?verbose" '\[\+\]ping ok.*readyz check passed' kubectl get --raw '/readyz?verbose'
check "get --raw /livez" '^ok$' kubectl get --raw /livez
check "get --raw /api" '"kind":"APIVersions"' kubectl get --raw /api
check "get --raw /apis/kubevirt.io/v1" '"kind":"APIResourceList".*"virtualmachines/status"' kubectl get --raw /apis/kubevirt.io/v1
check "get --raw /openapi/v3" '"apis/kubevirt.io/v1":' kubectl get --raw /openapi/v3
check "get --raw of an object" '"kind":"Namespace".*"name":"default"' kubectl get --raw /api/v1/namespaces/default
refuse "get --raw of nothing" 'could not find the requested resource' kubectl get --raw /apis/nonsense

node=kubectl-$run
check "create a node" "node/$node created" stdin "{apiVersion: v1, kind: Node, metadata: {name: $node, labels: {kubectl-checks: $run}}}" create -f -
check "cordon" "node/$node cordoned" kubectl cordon "$node"
check "get of a node" "$node +(Unknown|NotReady),SchedulingDisabled" kubectl get node "$node"
check "uncordon" "node/$node uncordoned" kubectl uncordon "$node"
check "taint" "node/$node tainted" kubectl taint node "$node" checks=yes:NoExecute
refuse "taint again" 'already has checks taint' kubectl taint node "$node" checks=no:NoExecute
check "describe a node" "Name: +$node.*Taints: .*checks=yes:NoExecute.*Unschedulable: +false" kubectl describe node "$node"
check "untaint" "node/$node untainted" kubectl taint node "$node" checks-
check "patch of a node's status" "node/$node patched" kubectl patch node "$node" --subresource=status \
  -p '{"status":{"capacity":{"cpu":"4"},"conditions":[{"type":"Ready","status":"True"}]}}'
check "the node is ready" "$node +Ready " kubectl get node "$node"
check "a pod on the node" 'pod/pod created' stdin "$(sed "s/^spec:/spec:\n  nodeName: $node/" pod.yaml)" create -f -
check "get pods of a node" '^pod/pod$' kubectl get pods -A --field-selector "spec.nodeName=$node" -o name
check "drain evicts it" "node/$node cordoned.*evicting pod $namespace/pod.*node/$node drained" \
  kubectl drain "$node" --force --grace-period=0 --timeout=60s
refuse "the pod is gone" 'pods "pod" not found' k get pod pod
check "delete of a node" "node \"$node\" deleted" kubectl delete node "$node"
