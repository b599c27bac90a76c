# delete: cascades, finalizers, selectors
owned() { # owned OWNER-UID NAME: a ConfigMap that belongs to the ConfigMap "owner"
  stdin "{apiVersion: v1, kind: ConfigMap, metadata: {name: $2, labels: {set: owned}, ownerReferences: [
    {apiVersion: v1, kind: ConfigMap, name: owner, uid: $1, blockOwnerDeletion: true}]}}" create -f -
}
family() {
  k create configmap owner >/dev/null
  owned "$(k get configmap owner -o 'jsonpath={.metadata.uid}')" dependent >/dev/null
}

family
check "delete --cascade=background" 'configmap "owner" deleted' k delete configmap owner --cascade=background
soon "takes the dependents later" '^$' k get configmap -l set=owned -o name
family
check "delete --cascade=foreground" 'configmap "owner" deleted' k delete configmap owner --cascade=foreground
check "takes the dependents first" '^$' k get configmap -l set=owned -o name
family
check "delete --cascade=orphan" 'configmap "owner" deleted' k delete configmap owner --cascade=orphan
check "leaves the dependents" '^dependent \[\]$' k get configmap dependent -o 'jsonpath={.metadata.name} [{.metadata.ownerReferences}]'
check "delete by label" 'configmap "dependent" deleted' k delete configmap -l set=owned

k create configmap held >/dev/null
k patch configmap held --type=merge -p '{"metadata":{"finalizers":["example.org/hold"]}}' >/dev/null
check "delete --wait=false" 'configmap "held" deleted' k delete configmap held --wait=false
check "a finalizer holds the object" '^20[0-9-]*T' k get configmap held -o 'jsonpath={.metadata.deletionTimestamp}'
refuse "a held object takes no new finalizers" 'no new finalizers can be added if the object is being deleted' \
  k patch configmap held --type=merge -p '{"metadata":{"finalizers":["example.org/hold","example.org/more"]}}'
check "the last finalizer lets it go" 'held patched' k patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'
soon "it is gone" '^$' k get configmap held --ignore-not-found

k apply -f vm.yaml -f pod.yaml -f configmap.yaml -f service.yaml >/dev/null
check "delete --dry-run=server" 'deleted.*\(server dry run\)' k delete vm machine --dry-run=server
check "delete -f" 'virtualmachine.kubevirt.io "machine" deleted' k delete -f vm.yaml
check "delete of a pod without a node" 'pod "pod" deleted' k delete pod pod
check "delete --now" 'configmap "settings" deleted' k delete configmap settings --now
check "delete several" 'service "web" deleted' k delete service/web
refuse "delete what is not there" 'virtualmachines.kubevirt.io "machine" not found' k delete vm machine
check "delete --ignore-not-found" '^$|No resources found' k delete vm machine --ignore-not-found
k create configmap a >/dev/null; k create configmap b >/dev/null
check "delete by field selector" 'configmap "a" deleted' k delete configmap --field-selector metadata.name=a
check "delete --all" 'configmap "b" deleted' k delete configmap --all
check "delete of a directory" 'configmap "one" deleted.*secret "one" deleted' bash -c \
  "'$program' -n $namespace apply -R -f directory >/dev/null && '$program' -n $namespace delete -R -f directory"

kubectl create namespace "$namespace-gone" >/dev/null
kubectl -n "$namespace-gone" apply -f vm.yaml -f configmap.yaml >/dev/null
check "delete of a namespace takes all that is in it" "namespace \"$namespace-gone\" deleted" kubectl delete namespace "$namespace-gone"
refuse "the namespace is gone" 'not found' kubectl get namespace "$namespace-gone"
check "and so are its objects" '^$' kubectl get vm -A --field-selector "metadata.namespace=$namespace-gone" -o name
