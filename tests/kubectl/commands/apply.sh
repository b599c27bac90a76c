# apply on the client and on the server, diff, replace, edit, dry runs and validation
named() { sed "s/name: settings/name: $1/; ${2:-}" configmap.yaml; } # named NAME [SED-COMMAND]: the ConfigMap under another name
green=$(named settings s/blue/green/)

check "apply creates" '^configmap/settings created$' k apply -f configmap.yaml
check "apply finds nothing to do" '^configmap/settings unchanged$' k apply -f configmap.yaml
check "apply notes what it applied" '"colour": ?"blue"' k apply view-last-applied configmap settings -o json
check "diff finds nothing" '^$' k diff -f configmap.yaml
refuse "diff shows a change" '-  colour: blue.*\+  colour: green' stdin "$green" diff -f -
check "apply from standard input changes" '^configmap/settings configured$' stdin "$green" apply -f -
check "what was applied is there" '^green small$' k get configmap settings -o 'jsonpath={.data.colour} {.data.size}'
check "apply removes what is no longer in the file" '^configmap/settings configured$' stdin "$(named settings 's/blue/green/; /size:/d')" apply -f -
check "it is gone, and nothing else" '^\{"colour":"green"\}$' k get configmap settings -o 'jsonpath={.data}'
check "apply takes a directory" 'configmap/one created.*secret/one created.*configmap/two created' k apply -f directory
check "apply takes a tree" 'configmap/three created.*configmap/one unchanged' k apply -R -f directory
check "apply --prune removes what is no longer there" 'configmap/three pruned' \
  k apply -f directory --prune -l set=directory --prune-allowlist=core/v1/ConfigMap
check "apply takes a kustomization" 'configmap/kustomized created' k apply -k kustomization
check "apply of a custom resource" '^virtualmachine.kubevirt.io/machine created$' k apply -f vm.yaml
check "apply of a custom resource finds nothing to do" '^virtualmachine.kubevirt.io/machine unchanged$' k apply -f vm.yaml
check "apply changes a custom resource" 'machine configured' stdin "$(sed 's/cores: 2/cores: 4/' vm.yaml)" apply -f -
check "the custom resource has changed" '^4$' k get vm machine -o 'jsonpath={.spec.template.spec.domain.cpu.cores}'
check "apply of a Deployment" '^deployment.apps/web created$' k apply -f deployment.yaml
check "apply merges lists by their keys" 'web configured' stdin "$(sed 's/containerPort: 8080/containerPort: 8081/' deployment.yaml)" apply -f -
check "the list has one entry" '^\[8081\]$' k get deployment web -o 'jsonpath=[{.spec.template.spec.containers[*].ports[*].containerPort}]'

check "server-side apply creates" '^configmap/shared serverside-applied$' \
  stdin "$(named shared)" apply --server-side --field-manager=first -f -
refuse "server-side apply refuses what another manager owns" \
  'Apply failed with 1 conflict: conflict with "first": \.data\.colour' \
  stdin "$(named shared s/blue/green/)" apply --server-side --field-manager=second -f -
check "server-side apply takes it by force" 'shared serverside-applied' \
  stdin "$(named shared s/blue/green/)" apply --server-side --field-manager=second --force-conflicts -f -
check "both managers are recorded" '^first second $' \
  k get configmap shared -o 'go-template={{range .metadata.managedFields}}{{.manager}} {{end}}'
refuse "server-side diff" '-  colour: green.*\+  colour: blue' \
  stdin "$(named shared)" diff --server-side --field-manager=second -f -
check "server-side apply of a custom resource" 'machine serverside-applied' \
  k apply --server-side --field-manager=first --force-conflicts -f vm.yaml
check "client-side apply moves to server-side apply" 'settings serverside-applied' k apply --server-side --force-conflicts -f configmap.yaml
check "last-applied can be set" 'configmap/settings configured' stdin "$green" apply set-last-applied -f -

check "dry run on the server answers as if" '^configmap/imagined created \(server dry run\)$' \
  stdin "$(named imagined)" apply --dry-run=server -f -
check "dry run shows what the server would store" 'uid: [0-9a-f]{8}-' \
  stdin "$(named imagined)" create --dry-run=server -o yaml -f -
refuse "and stores nothing" 'configmaps "imagined" not found' k get configmap imagined
check "dry run on the client needs no server" '^configmap/imagined created \(dry run\)$' k create configmap imagined --dry-run=client

unknown='s/^data:/spelled: wrong\ndata:/'
refuse "strict validation names an unknown field" 'strict decoding error: unknown field "spelled"' \
  stdin "$(named strict "$unknown")" create --validate=strict -f -
check "warn validation warns" 'Warning: unknown field "spelled".*configmap/warned created' \
  stdin "$(named warned "$unknown")" create --validate=warn -f -
check "ignore validation ignores" '^configmap/ignored created$' stdin "$(named ignored "$unknown")" create --validate=ignore -f -
refuse "strict validation of a custom resource" 'strict decoding error: unknown field "spec.runStrategi"' \
  stdin "$(sed 's/runStrategy/runStrategi/; s/name: machine/name: strict/' vm.yaml)" apply --validate=strict -f -
refuse "an enum of a custom resource" 'spec.runStrategy: Unsupported value: "Sometimes": supported values: "Always", "Halted"' \
  stdin "$(sed 's/Halted/Sometimes/; s/name: machine/name: strict/' vm.yaml)" create -f -
refuse "a wrong type in a custom resource" 'spec.template.spec.domain.cpu.cores: Invalid value: "string"' \
  stdin "$(sed 's/cores: 2/cores: "two"/; s/name: machine/name: strict/' vm.yaml)" create -f -
refuse "an unknown kind" 'no matches for kind "Nonsense" in version "v1"' stdin '{apiVersion: v1, kind: Nonsense, metadata: {name: a}}' apply -f -
refuse "an invalid name" 'Invalid value: "Not_Valid": a lowercase RFC 1123 subdomain' \
  stdin "$(named Not_Valid)" create -f -

check "replace" '^configmap/settings replaced$' stdin "$(named settings s/small/large/)" replace -f -
check "what was replaced is there" '^large$' k get configmap settings -o 'jsonpath={.data.size}'
refuse "replace with an old version" 'the object has been modified; please apply your changes to the latest version' \
  stdin "$(named settings 's/^  labels:/  resourceVersion: "1"\n  labels:/')" replace -f -
refuse "replace of what is not there" 'configmaps "absent" not found' stdin "$(named absent)" replace -f -
check "replace --force deletes and creates" 'configmap "settings" deleted.*configmap/settings replaced' k replace --force -f configmap.yaml
check "replace of a status" 'virtualmachine.kubevirt.io/machine replaced' \
  stdin "$(k get vm machine -o json | sed '0,/"spec": {/s//"status": {"printableStatus": "Paused"}, "spec": {/')" replace --subresource=status -f -
check "the status is there" '^Paused$' k get vm machine -o 'jsonpath={.status.printableStatus}'

check "edit" '^configmap/settings edited$' env KUBE_EDITOR="sed -i s/blue/red/" timeout --foreground 90 "$program" -n "$namespace" edit configmap settings
check "what was edited is there" '^red$' k get configmap settings -o 'jsonpath={.data.colour}'
check "edit without a change" 'Edit cancelled, no changes made' env KUBE_EDITOR=true timeout --foreground 90 "$program" -n "$namespace" edit configmap settings
check "edit of a custom resource" '^virtualmachine.kubevirt.io/machine edited$' \
  env KUBE_EDITOR="sed -i s/Halted/Manual/" timeout --foreground 90 "$program" -n "$namespace" edit vm machine
check "edit of a status" 'machine edited' \
  env KUBE_EDITOR="sed -i s/Paused/Stopped/" timeout --foreground 90 "$program" -n "$namespace" edit vm machine --subresource=status
check "both edits are there" '^Manual Stopped$' k get vm machine -o 'jsonpath={.spec.runStrategy} {.status.printableStatus}'
