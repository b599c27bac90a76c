# who may do what: auth, tokens, impersonation
k create serviceaccount worker >/dev/null
k create role reader --verb=get,list,watch --resource=configmaps,virtualmachines.kubevirt.io >/dev/null
k create rolebinding reader --role=reader --serviceaccount="$namespace:worker" >/dev/null
worker=system:serviceaccount:$namespace:worker

check "auth whoami" 'Username.*Groups.*system:masters.*system:authenticated' k auth whoami
check "auth can-i" '^yes$' k auth can-i create virtualmachines.kubevirt.io
check "auth can-i on everything" '^yes$' k auth can-i '*' '*' --all-namespaces
check "auth can-i for another" '^yes$' k auth can-i list vm --as="$worker"
refuse "auth can-i says no" '^no' k auth can-i delete vm --as="$worker"
refuse "auth can-i elsewhere says no" '^no' kubectl -n default auth can-i list configmaps --as="$worker"
check "auth can-i on a subresource" '^yes$' k auth can-i get pods --subresource=log
check "auth can-i on a path" '^yes$' k auth can-i get /version --as="$worker"
check "auth can-i --list" 'Resources +Non-Resource URLs +Resource Names +Verbs.*virtualmachines.kubevirt.io +\[\] +\[\] +\[get list watch\]' \
  k auth can-i --list --as="$worker"
check "auth can-i --list of an admin" '\*\.\* +\[\] +\[\] +\[\*\]' k auth can-i --list
check "auth whoami as another" "Username +$worker.*system:serviceaccounts" k auth whoami --as="$worker"
check "auth reconcile" 'role.rbac.authorization.k8s.io/reconciled reconciled' stdin "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role,
  metadata: {name: reconciled, namespace: $namespace}, rules: [{apiGroups: ['apps'], resources: [deployments], verbs: [get]}]}" auth reconcile -f -
refuse "a request that is forbidden" \
  "virtualmachines.kubevirt.io is forbidden: User \"$worker\" cannot list resource \"virtualmachines\" in API group \"kubevirt.io\" in the namespace \"default\"" \
  kubectl -n default get vm --as="$worker"
refuse "nobody gives away what they do not have" 'is attempting to grant RBAC permissions not currently held' bash -c \
  "'$program' -n $namespace create role maker --verb=create --resource=roles.rbac.authorization.k8s.io >/dev/null
   '$program' -n $namespace create rolebinding maker --role=maker --serviceaccount=$namespace:worker >/dev/null
   '$program' -n $namespace create role grabber --verb=delete --resource=secrets --as=$worker"

check "create token" '^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$' k create token worker
token=$output
check "create token with a duration and an audience" '"kind": "TokenRequest".*"checks"' k create token worker --duration=1h --audience=checks -o json
refuse "create token of nobody" 'serviceaccounts "absent" not found' k create token absent
# The admin's certificate would win over a token, so the worker gets a context of its own.
kubectl config set-credentials worker --token="$token" >/dev/null
kubectl config set-context worker --cluster="$(kubectl config view -o 'jsonpath={.clusters[0].name}')" --user=worker >/dev/null
check "a token says who one is" "Username +$worker.*system:serviceaccounts:$namespace" k --context=worker auth whoami
check "a token may what its account may" 'No resources found' k --context=worker get vm
refuse "and no more" 'secrets is forbidden: User' k --context=worker get secrets
kubectl config set-credentials worker --token="${token}x" >/dev/null
refuse "a damaged token is nobody's" 'Unauthorized|must be logged in|provide credentials' k --context=worker get vm
