# patch, label, annotate, scale, set, rollout, wait
k apply -f configmap.yaml -f deployment.yaml -f vm.yaml -f pod.yaml >/dev/null

check "merge patch" '^configmap/settings patched$' k patch configmap settings --type=merge -p '{"data":{"colour":"red","size":null}}'
check "merge patch changed and removed" '^\{"colour":"red"\}$' k get configmap settings -o 'jsonpath={.data}'
check "merge patch without a change" '^configmap/settings patched \(no change\)$' k patch configmap settings --type=merge -p '{"data":{"colour":"red"}}'
check "JSON patch" 'machine patched' k patch vm machine --type=json \
  -p '[{"op":"test","path":"/spec/runStrategy","value":"Halted"},{"op":"replace","path":"/spec/runStrategy","value":"Manual"}]'
check "JSON patch changed" '^Manual$' k get vm machine -o 'jsonpath={.spec.runStrategy}'
refuse "JSON patch whose test fails" 'The request is invalid: the server rejected our request due to an error in our request' k patch vm machine --type=json -p '[{"op":"test","path":"/spec/runStrategy","value":"Always"}]'
check "strategic patch" 'deployment.apps/web patched' \
  k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.invalid/web:2"},{"name":"side","image":"registry.invalid/side:1"}]}}}}'
check "strategic patch merged by name" '^web=registry.invalid/web:2 side=registry.invalid/side:1 ports=8080$' k get deployment web \
  -o 'jsonpath={range .spec.template.spec.containers[*]}{.name}={.image} {end}ports={.spec.template.spec.containers[*].ports[*].containerPort}'
check "strategic patch removes by name" 'web patched' \
  k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}'
check "only one is left" '^web$' k get deployment web -o 'jsonpath={.spec.template.spec.containers[*].name}'
refuse "strategic patch of a custom resource" 'application/strategic-merge-patch\+json is not supported by kubevirt.io/v1, Kind=VirtualMachine.*accepted media types include: application/json-patch\+json, application/merge-patch\+json, application/apply-patch\+yaml' \
  k patch vm machine --type=strategic -p '{"spec":{"runStrategy":"Always"}}'
check "patch of a status" 'machine patched' k patch vm machine --subresource=status --type=merge \
  -p '{"spec":{"runStrategy":"Always"},"status":{"printableStatus":"Running","ready":true}}'
check "only the status changed" '^Manual Running$' k get vm machine -o 'jsonpath={.spec.runStrategy} {.status.printableStatus}'
check "patch of the rest leaves the status" 'machine patched' k patch vm machine --type=merge -p '{"spec":{"runStrategy":"Always"},"status":{"printableStatus":"Paused"}}'
check "the status stayed" '^Always Running$' k get vm machine -o 'jsonpath={.spec.runStrategy} {.status.printableStatus}'
refuse "patch that makes an object invalid" 'spec.replicas: Invalid value: -1: must be greater than or equal to 0' \
  k patch deployment web -p '{"spec":{"replicas":-1}}'
refuse "patch that is not JSON" 'error decoding patch: unexpected end of JSON input' k patch configmap settings --type=merge -p '{"data"'
check "patch --dry-run=server" 'patched' k patch configmap settings --type=merge --dry-run=server -p '{"data":{"colour":"green"}}'
check "and nothing changed" '^red$' k get configmap settings -o 'jsonpath={.data.colour}'

check "label" '^virtualmachine.kubevirt.io/machine labeled$' k label vm machine tier=first
refuse "label again" "already has a value \(first\), and --overwrite is false" k label vm machine tier=second
check "label --overwrite" 'machine labeled' k label vm machine tier=second --overwrite
check "label --list" 'tier=second' k label vm machine --list
check "label with a selector" 'machine labeled' k label vm -l tier=second extra=yes
check "label removes" 'machine unlabeled' k label vm machine tier-
check "the labels" '^\{"app":"machine","extra":"yes"\}$' k get vm machine -o 'jsonpath={.metadata.labels}'
refuse "an invalid label" 'invalid label value|a valid label must' k label vm machine tier=not/valid
check "annotate" '^configmap/settings annotated$' k annotate configmap settings note='some words' other=1
check "annotate --overwrite" 'annotated' k annotate configmap settings note=others --overwrite
check "annotate removes" 'annotated' k annotate configmap settings other-
check "the annotations" '^others $' k get configmap settings -o 'jsonpath={.metadata.annotations.note} {.metadata.annotations.other}'
check "annotate --all" 'machine annotated' k annotate vm --all seen=yes

check "scale" '^deployment.apps/web scaled$' k scale deployment web --replicas=3
check "scale changed the replicas" '^3$' k get deployment web -o 'jsonpath={.spec.replicas}'
check "scale --current-replicas" 'web scaled' k scale deployment web --current-replicas=3 --replicas=2
refuse "scale from a wrong number" 'Expected replicas to be 3, was 2' k scale deployment web --current-replicas=3 --replicas=1
check "patch of the scale" 'scale.autoscaling/web patched' k patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":1}}'
check "autoscale" 'horizontalpodautoscaler.autoscaling/web autoscaled' k autoscale deployment web --min=1 --max=4
check "the autoscaler" 'Deployment/web .* 1 +4 ' k get hpa web

check "set image" 'deployment.apps/web image updated' k set image deployment/web web=registry.invalid/web:3
check "set env" 'web env updated' k set env deployment/web COLOUR=blue
check "set env --list" 'COLOUR=blue' k set env deployment/web --list
check "set resources" 'web resource requirements updated' k set resources deployment/web --requests=cpu=100m
check "set serviceaccount" 'web serviceaccount updated' k set serviceaccount deployment/web default
check "all of that is there" '^registry.invalid/web:3 blue 100m default$' k get deployment web -o \
  'jsonpath={.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value} {.spec.template.spec.containers[0].resources.requests.cpu} {.spec.template.spec.serviceAccountName}'
check "the generation counts changes of the spec" '^([5-9]|1[0-9])$' k get deployment web -o 'jsonpath={.metadata.generation}'

# No controller here rolls anything out, so the status is written by hand.
refuse "rollout status waits" 'Waiting for deployment spec update to be observed|timed out' k rollout status deployment/web --timeout=1s
generation=$(k get deployment web -o 'jsonpath={.metadata.generation}')
check "patch of a built-in status" 'web patched' k patch deployment web --subresource=status --type=merge \
  -p "{\"status\":{\"observedGeneration\":$generation,\"replicas\":1,\"updatedReplicas\":1,\"readyReplicas\":1,\"availableReplicas\":1,\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}"
check "rollout status" 'deployment "web" successfully rolled out' k rollout status deployment/web --timeout=20s
check "wait --for=condition" 'deployment.apps/web condition met' k wait --for=condition=Available deployment/web --timeout=20s
check "rollout restart" 'deployment.apps/web restarted' k rollout restart deployment/web
check "rollout pause" 'deployment.apps/web paused' k rollout pause deployment/web
check "rollout resume" 'deployment.apps/web resumed' k rollout resume deployment/web
check "rollout history" 'deployment.apps/web' k rollout history deployment/web

check "wait --for=jsonpath" 'machine condition met' k wait --for=jsonpath='{.status.printableStatus}'=Running vm/machine --timeout=20s
check "wait --for=create" 'configmap/settings condition met' k wait --for=create configmap/settings --timeout=20s
refuse "wait gives up" 'timed out waiting for the condition on virtualmachines/machine' k wait --for=condition=Ready vm/machine --timeout=1s
# in_background COMMAND…: what others do while a wait waits
in_background() { ("$@" >/dev/null 2>&1) & }
ready_later() {
  sleep 1
  k patch vm machine --subresource=status --type=merge \
    -p '{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
}
in_background ready_later
check "wait sees a condition come" 'virtualmachine.kubevirt.io/machine condition met' k wait --for=condition=Ready vm/machine --timeout=60s
wait
delete_later() { sleep 1; k delete configmap settings; }
in_background delete_later
check "wait --for=delete" 'configmap/settings condition met' k wait --for=delete configmap/settings --timeout=60s
wait
check "wait --for=delete of what is gone" '' k wait --for=delete configmap/settings --timeout=5s
