# the generators of create, run and expose
check "create namespace" "namespace/$namespace-more created" kubectl create namespace "$namespace-more"
kubectl label namespace "$namespace-more" "kubectl-checks=$run" >/dev/null
check "create configmap" 'configmap/files created' k create configmap files --from-file=configmap.yaml --from-literal=a=b
check "the file is in it" 'colour: blue' k get configmap files -o 'jsonpath={.data.configmap\.yaml}'
check "create secret generic" 'secret/plain created' k create secret generic plain --from-literal=password=hidden
check "a secret is base64" '^aGlkZGVu$' k get secret plain -o 'jsonpath={.data.password}'
check "create secret docker-registry" 'secret/registry created' \
  k create secret docker-registry registry --docker-server=registry.invalid --docker-username=u --docker-password=p
check "its type" '^kubernetes.io/dockerconfigjson$' k get secret registry -o 'jsonpath={.type}'
refuse "create again" 'secrets "plain" already exists' k create secret generic plain
check "create serviceaccount" 'serviceaccount/worker created' k create serviceaccount worker
check "create role" 'role.rbac.authorization.k8s.io/reader created' k create role reader --verb=get,list --resource=configmaps,virtualmachines.kubevirt.io
check "the role names both groups" '"apiGroups":\["kubevirt.io"\]' k get role reader -o 'jsonpath={.rules}'
check "create rolebinding" 'rolebinding.rbac.authorization.k8s.io/reader created' \
  k create rolebinding reader --role=reader --serviceaccount="$namespace:worker" --user=somebody
check "create clusterrole" 'clusterrole.rbac.authorization.k8s.io/kubectl-.* created' \
  k create clusterrole "$namespace" --verb=get --non-resource-url=/healthz
check "create clusterrolebinding" 'clusterrolebinding.rbac.authorization.k8s.io/kubectl-.* created' \
  k create clusterrolebinding "$namespace" --clusterrole="$namespace" --user=somebody
check "create deployment" 'deployment.apps/site created' k create deployment site --image=registry.invalid/site:1 --replicas=2 --port=80
check "defaults of a deployment" '^RollingUpdate 25% 10 600 Always 30$' k get deployment site -o \
  'jsonpath={.spec.strategy.type} {.spec.strategy.rollingUpdate.maxSurge} {.spec.revisionHistoryLimit} {.spec.progressDeadlineSeconds} {.spec.template.spec.restartPolicy} {.spec.template.spec.terminationGracePeriodSeconds}'
check "create job" 'job.batch/once created' k create job once --image=registry.invalid/once:1 -- echo hello
check "create cronjob" 'cronjob.batch/nightly created' k create cronjob nightly --image=registry.invalid/once:1 --schedule='0 3 * * *'
check "create job from a cronjob" 'job.batch/tonight created' k create job tonight --from=cronjob/nightly
check "it belongs to the cronjob" '^CronJob/nightly$' \
  k get job tonight -o 'jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}'
refuse "a schedule that is none" 'spec.schedule: Invalid value' k create cronjob broken --image=i --schedule='every night'
check "create service clusterip" 'service/site created' k create service clusterip site --tcp=80:8080
check "the service has an address" '^10\.' k get service site -o 'jsonpath={.spec.clusterIP}'
check "create service nodeport" 'service/outside created' k create service nodeport outside --tcp=80
check "the service has a port of the nodes" '^3[0-2][0-9]{3}$' k get service outside -o 'jsonpath={.spec.ports[0].nodePort}'
check "create service headless" '^None$' bash -c "'$program' -n $namespace create service clusterip headless --clusterip=None --tcp=80 >/dev/null && '$program' -n $namespace get service headless -o 'jsonpath={.spec.clusterIP}'"
check "create service externalname" 'service/elsewhere created' k create service externalname elsewhere --external-name=example.org
check "expose" 'service/exposed exposed' k expose deployment site --name=exposed --port=80
check "the selector comes from the deployment" '^\{"app":"site"\}$' k get service exposed -o 'jsonpath={.spec.selector}'
check "create ingress" 'ingress.networking.k8s.io/site created' k create ingress site --rule='example.org/*=site:80' --class=none
check "the ingress" 'site +none +example.org ' k get ingress site
check "create pdb" 'poddisruptionbudget.policy/site created' k create poddisruptionbudget site --selector=app=site --min-available=1
check "create quota" 'resourcequota/few created' k create quota few --hard=count/secrets=50,pods=10
check "create priorityclass" 'priorityclass.scheduling.k8s.io/kubectl-.* created' k create priorityclass "$namespace" --value=1000 --description=checks
check "run" 'pod/single created' k run single --image=registry.invalid/single:1 --restart=Never --env=A=b --labels=app=single
check "the pod got a service account and tolerations" '^default node.kubernetes.io/not-ready node.kubernetes.io/unreachable$' \
  k get pod single -o 'jsonpath={.spec.serviceAccountName} {.spec.tolerations[*].key}'
check "create -f with a generated name" 'configmap/made-[a-z0-9]{5} created' stdin '{apiVersion: v1, kind: ConfigMap, metadata: {generateName: made-}}' create -f -
check "create -f of a list" 'configmap/first created.configmap/second created' stdin '{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: ConfigMap, metadata: {name: first}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: second}}]}' create -f -
check "create --raw" '"kind":"ConfigMap"' stdin '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"raw"}}' \
  create --raw "/api/v1/namespaces/$namespace/configmaps" -f -
check "replace --raw" '"data":\{"a":"b"\}' stdin '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"raw"},"data":{"a":"b"}}' \
  replace --raw "/api/v1/namespaces/$namespace/configmaps/raw" -f -
check "delete --raw" '"status":"Success"' k delete --raw "/api/v1/namespaces/$namespace/configmaps/raw"
refuse "create in a namespace that is not there" 'namespaces "absent-namespace" not found' kubectl -n absent-namespace create configmap a
kubectl delete clusterrolebinding,clusterrole,priorityclass "$namespace" >/dev/null
